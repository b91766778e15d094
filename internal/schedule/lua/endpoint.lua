-- endpoint.lua: what an attempt says of its endpoint, and what follows for the
-- subscriber: its latency, its in-flight cap, its breaker and its holds. Drawn in
-- docs/holds.md.
--
-- Only blame moves anything: '+' a 2xx, 'e' the endpoint's failure, 'p' the payload's
-- (the endpoint answered), 'u' ours, which says nothing.

-- A breaker's first rest and its longest, ms. Each is drawn from the upper half of
-- its window, which doubles: a probe each 1 to 2 minutes costs a dead endpoint's
-- deliveries next to nothing and finds one that is back soon enough.
local FIRST_REST, LONGEST_REST = 1000, 120000

-- rest is how long the breaker stays open. The draw (0 to 999999) is the caller's, so
-- that a repeated call has the same effect; the id spreads those of one call.
local function rest(s, draw)
  local window = math.min(FIRST_REST * 2 ^ math.min(s.step, 10), LONGEST_REST)
  for i = math.max(1, #s.id - 3), #s.id do draw = (draw * 31 + string.byte(s.id, i)) % 1000000 end
  return math.floor(window / 2 + window / 2 * draw / 1000000)
end

-- succeed takes in a 2xx, whosever it is: it is a fact about the endpoint.
local function succeed(s)
  if s.open > 0 then
    -- Half-open: as one that nobody knows, it begins anew at a cap of 1.
    s.open, s.step, s.probe, s.last, s.changed = 0, 0, '-', '-', NOW
    s.fails, s.win, s.lat, s.troubled = 0, 10000, 0, true
    return
  end
  if s.fails > 0 then s.fails, s.troubled = 0, true end
  -- One more a round of successes (TCP's congestion avoidance), and twice that until
  -- its first failure.
  local most = s.max * 10000
  if s.win < most then
    s.win = math.min(most, s.win + math.floor((s.cut == 0 and 2 or 1) * 100000000 / s.win))
  end
end

-- fail takes in a failure blamed on the endpoint. What was leased before the last cut
-- or change was sent before its lesson was learned, and teaches it no second time.
local function fail(s, leased, probe, draw)
  s.troubled = true
  if leased > s.cut then
    s.win, s.cut = math.max(10000, math.floor(math.min(s.win, s.max * 10000) / 2)), NOW
  end
  if s.open > 0 then
    if probe then s.open, s.step = NOW + rest(s, draw), s.step + 1 end
  else
    s.fails = s.fails + 1
    if s.fails >= s.bf + 0 then
      s.open, s.step, s.fails, s.changed = NOW + rest(s, draw), s.step + 1, 0, NOW
    end
  end
end

-- observe takes in what an attempt came to: blame, how long it took (ms), for how
-- long the endpoint asked to be left alone (ms, 0 if not), whether it is gone (410),
-- when the attempt was leased, and whether it was the probe.
local function observe(s, blame, took, wait, gone, leased, probe, draw)
  if not s or blame == 'u' then return end
  if s.moved > 0 and leased <= s.moved then return end -- of another endpoint
  if leased <= s.changed and s.open == 0 then return end -- of before the breaker closed
  touch(s)
  -- A moving average (1/4 the newest) forgets a hang within a dozen answers.
  s.lat = math.max(1, s.lat == 0 and took or math.floor((3 * s.lat + took) / 4))
  if blame == '+' then
    succeed(s)
  elseif blame == 'e' then
    fail(s, leased, probe, draw)
    if wait > 0 then s.throttled = math.max(s.throttled, NOW + wait) end
    if gone then s.disabled = true end
  end
end
