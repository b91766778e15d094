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

-- first_success settles what most are, a 2xx at the first attempt: the same as below,
-- but the record is not taken apart (9 us of 25). It says false if this is none.
local FIRST = '^l(%a %d+ %d+ %S+ (%S+) %d+ 1 1) 0 (0 0 0 0 0 %d+ (%d+)) '

local function first_success(id, text, fence, flags, status, attempt, took)
  if fence ~= '1' or flags ~= '+' or attempt ~= '' then return false end
  local head, sub, times, leased = string.match(text, FIRST)
  if not head then return false end
  local ended, probe = end_lease({id = id, sb = sub})
  if ended then observe(subscriber(sub), '+', took + 0, 0, false, leased + 0, probe, draw) end
  redis.call('ZREM', T .. 'pend:' .. sub, id)
  redis.call('SET', T .. 'd:' .. id, format('d%s 1 %s %s %s delivered - -', head, times, NOWS, status), 'PX', retention)
  count('pending', -1)
  count('delivered', 1)
  return true
end

local function settle(id, fence, next, due, flags, outcome, status, reason, attempt, body, took, wait)
  local text = redis.call('GET', T .. 'd:' .. id)
  if text and next == 'd' and first_success(id, text, fence, flags, status, attempt, took) then return 'applied' end
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

local out = {NOW, 0}
for i = 3, #ARGV, 12 do
  out[#out + 1] = settle(unpack(ARGV, i, i + 11))
end
finish()
out[2] = next_due()
return out
