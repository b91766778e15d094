-- settle.lua: the one transition that ends a lease with a verdict.
--
-- KEYS[1]  prefix of the partition
-- ARGV     retention of delivered records (ms), draw (0 to 999999, of the breaker's
--          rest), then per verdict:
--          id, fence, next (d delivered, s scheduled, x dead), due, flags, outcome,
--          status, reason, attempt (JSON or ''), body (or ''), took (ms), wait (ms)
--          Flags are letters: the blame (+ e p u), g give the attempt back,
--          r reclaim, x the endpoint is gone.
-- Returns  {now, next due (0 none), a word per verdict: applied, applied_late,
--          already, stale, not_expired, missing}
--
-- The fence decides. At the fence a verdict is applied, even past the lease's
-- expiry: nobody else has started the delivery since. Below it the delivery has
-- moved on: a failure is dropped (already, if a verdict at or past that fence was
-- applied, else stale), but a 2xx is a fact and wins, whoever reports it.
-- A reclaim speaks for a dead worker, and is refused while the lease is alive.
--
-- Run twice, the second run finds the lease ended and the fence settled.
local retention, draw = ARGV[1], tonumber(ARGV[2])

-- late_success applies a 2xx that came after the delivery moved on.
local function late_success(r, fence, status, attempt)
  if r.st == 's' then
    unqueue(r)
  elseif r.st == 'x' then
    -- The endpoint had it all along: no longer dead, but the evidence stays.
    redis.call('ZREM', T .. 'dead', r.id)
    redis.call('ZREM', T .. 'dead:' .. r.sb, r.id)
    unpin(r)
    leave(r, 'delivered')
    count('dead', -1)
    count('pending', 1) -- as if it were pending still, which close() below ends
  elseif r.st ~= 'l' then
    return 'already' -- delivered, or cancelled
  end
  -- If another worker holds it now, its lease stays open until that one settles.
  redis.call('ZREM', T .. 'pend:' .. r.sb, r.id) -- before the note: removals come first
  if num(fence) > num(r.se) then r.se = fence end
  r.oc, r.hs, r.rs = 'delivered', status, '-'
  note(r, attempt)
  close(r, 'd', 'delivered', retention)
  touch(subscriber(r.sb))
  return 'applied_late'
end

-- What most verdicts are, a 2xx at the first attempt, is settled by the subscriber, with
-- few calls and without taking the record apart: 6 us each instead of 25. To the same
-- end as below.
local FIRST = '^l(%a %d+ %d+ %S+ (%S+) %d+ 1 1) 0 (0 0 0 0 0 %d+ (%d+)) '
local groups = {} -- by subscriber: ids, records, times

local function first_success(id, text, fence, next, flags, status, attempt, took)
  if fence ~= '1' or next ~= 'd' or flags ~= '+' or attempt ~= '' then return false end
  local head, sub, times, leased = string.match(text, FIRST)
  if not head then return false end
  local g = groups[sub]
  if not g then
    g = {ids = {}, records = {}, took = {}, leased = {}}
    groups[sub] = g
  end
  local n = #g.ids + 1
  g.ids[n], g.took[n], g.leased[n] = id, took, leased
  g.records[n] = format('d%s 1 %s %s %s delivered - -', head, times, NOWS, status)
  return true
end

local function settle_firsts(sub, g)
  local ended = redis.call('ZREM', T .. 'leases', unpack(g.ids))
  redis.call('ZREM', T .. 'pend:' .. sub, unpack(g.ids))
  for i, id in ipairs(g.ids) do
    redis.call('SET', T .. 'd:' .. id, g.records[i], 'PX', retention)
  end
  count('pending', -#g.ids)
  count('delivered', #g.ids)
  local s = subscriber(sub)
  tally(s, #g.ids)
  if not s or ended == 0 then return end
  s.n = math.max(0, s.n - ended)
  touch(s)
  for i, id in ipairs(g.ids) do
    observe(s, '+', g.took[i] + 0, 0, false, g.leased[i] + 0, s.probe == id, draw)
  end
end

local function settle(text, id, fence, next, due, flags, outcome, status, reason, attempt, body, took, wait)
  local r = text and decode(id, text)
  if not r then return 'missing' end
  local at_fence = fence == r.dc
  local reclaim, blame = string.find(flags, 'r', 1, true), string.sub(flags, 1, 1)
  if reclaim then
    local expires = tonumber(redis.call('ZSCORE', T .. 'leases', id))
    if not at_fence or not expires then return 'stale' end
    if expires > NOW then return 'not_expired' end
  end

  if at_fence then
    local ended, probe = end_lease(r)
    if ended then
      observe(subscriber(r.sb), blame, tonumber(took), tonumber(wait), string.find(flags, 'x', 1, true),
        num(r.la), probe, draw)
    end
  end
  if not at_fence or r.st ~= 'l' then
    if next == 'd' then
      local result = late_success(r, fence, status, attempt)
      -- Below the fence nothing is known of the attempt but that it was an early one.
      if result == 'applied_late' then observe(subscriber(r.sb), '+', tonumber(took), 0, false, 0, false, draw) end
      return result
    end
    -- Cancelled or delivered under the worker's hands counts as settled too.
    if num(fence) <= num(r.se) or r.st == 'c' or r.st == 'd' then return 'already' end
    return 'stale'
  end

  r.oc, r.hs, r.wk = outcome, status, '-'
  -- A worker that cut its own request off has lost the lease as a dead one has:
  -- whatever gives an attempt back is counted, or the counters do not add up.
  if reclaim or outcome == 'lease_lost' then r.ll = plus(r.ll, 1) end
  if not reclaim then r.se = fence end
  if string.find(flags, 'g', 1, true) then r.at = plus(r.at, -1) end
  note(r, attempt)
  if next == 'd' then
    close(r, 'd', 'delivered', retention)
  elseif next == 'x' then
    bury(r, reason, body)
  else
    r.st, r.due = 's', due
    if r.ln == 'f' then r.ln = 'r' end
    save(r)
    enqueue(r)
  end
  return 'applied'
end

local VERDICT = 12
local keys, texts = {}, {}
for i = 3, #ARGV, VERDICT do keys[#keys + 1] = T .. 'd:' .. ARGV[i] end
if #keys > 0 then texts = redis.call('MGET', unpack(keys)) end

local out, seen, rest = {NOW, 0}, {}, {}
for k, text in ipairs(texts) do
  local i = 3 + (k - 1) * VERDICT
  local id = ARGV[i]
  if not seen[id] and text and
    first_success(id, text, ARGV[i + 1], ARGV[i + 2], ARGV[i + 4], ARGV[i + 6], ARGV[i + 8], ARGV[i + 10]) then
    out[k + 2] = 'applied'
  else
    rest[#rest + 1] = k
    out[k + 2] = 'missing'
  end
  seen[id] = true
end
for sub, g in pairs(groups) do settle_firsts(sub, g) end
local settled = {} -- ids whose record is not any more what was read
for _, g in pairs(groups) do
  for _, id in ipairs(g.ids) do settled[id] = true end
end
for _, k in ipairs(rest) do
  local i = 3 + (k - 1) * VERDICT
  local id, text = ARGV[i], texts[k]
  if settled[id] then text = redis.call('GET', keys[k]) end
  settled[id] = true
  out[k + 2] = settle(text, unpack(ARGV, i, i + VERDICT - 1))
end
finish()
out[2] = next_due()
return out
