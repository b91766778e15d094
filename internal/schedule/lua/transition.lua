-- transition.lua: parts of transitions. Each is called once the checks have
-- passed, and each begins by removing.

-- end_lease closes the lease if it is open, and frees its place under the cap. It
-- says whether it was open, and whether it was the breaker's probe. A probe that ends
-- without a word on the endpoint (its worker died, or handed it back) lets the next
-- one go at once: the breaker is never stuck behind a lease.
local function end_lease(r)
  if redis.call('ZREM', T .. 'leases', r.id) == 0 then return false end
  local s = subscriber(r.sb)
  if not s then return true, false end
  s.n = math.max(0, s.n - 1)
  touch(s)
  if s.probe ~= r.id then return true, false end
  s.probe, s.last, s.troubled = '-', r.id, true
  s.open = math.min(s.open, NOW)
  return true, true
end

-- fall notes that a delivery comes to fall due at a time (1), or does so no more (-1), for
-- the release curve: by minute, as long as that is to come. A first attempt is due at
-- once, and so is whatever is leased: neither comes here, and an attempt that succeeds
-- pays nothing for this.
local function fall(r, n)
  if r.ln == 'f' or num(r.due) <= NOW then return end
  -- A word, as a number of that size would have miniredis lay out an array up to it.
  local minute = format('%d', math.floor(r.due / 60000))
  falls[minute] = (falls[minute] or 0) + n
end

-- unqueue takes a scheduled delivery out of its lane.
local function unqueue(r)
  fall(r, -1)
  redis.call('ZREM', T .. 'q:' .. r.ln .. ':' .. r.sb, r.id)
  touch(subscriber(r.sb), r.ln)
end

local function enqueue(r)
  fall(r, 1)
  redis.call('ZADD', T .. 'q:' .. r.ln .. ':' .. r.sb, r.due, r.id)
  touch(subscriber(r.sb), r.ln)
end

-- unpin lets go of the payload that a dead letter held on to.
local function unpin(r)
  redis.call('SREM', T .. 'pins:' .. r.ev, r.id)
  if redis.call('EXISTS', T .. 'pins:' .. r.ev) == 0 then
    redis.call('DEL', T .. 'pin:' .. r.ev)
  end
end

-- leave notes in the cohort that a delivery is part of, if it is, how it ended; one that
-- had not been released yet is over.
local function leave(r, how)
  local cohort = redis.call('HGET', T .. 'claims', r.id)
  if not cohort then return end
  redis.call('HDEL', T .. 'claims', r.id)
  if redis.call('ZREM', T .. 'cohort:' .. cohort, r.id) == 1 then how = 'over' end
  redis.call('ZREM', T .. 'out:' .. cohort, r.id)
  redis.call('HINCRBY', T .. 'tally:' .. cohort, how, 1)
end

-- forget removes a dead letter with all that belongs to it.
local function forget(id, r)
  redis.call('ZREM', T .. 'dead', id)
  if r then
    redis.call('ZREM', T .. 'dead:' .. r.sb, id)
    unpin(r)
  end
  redis.call('DEL', T .. 'd:' .. id, T .. 'att:' .. id)
end

-- close makes a pending delivery final, as d or c; the record stays for retention
-- ms, so that a late verdict and a repeated enqueue still find it.
local function close(r, state, field, retention)
  redis.call('ZREM', T .. 'pend:' .. r.sb, r.id)
  r.st, r.en, r.wk = state, NOWS, '-'
  redis.call('SET', T .. 'd:' .. r.id, encode(r), 'PX', retention)
  if r.rg ~= '0' then
    unpin(r)
    leave(r, field)
  end
  -- A success at once has no evidence beside its record.
  if r.noted or num(r.at) > 1 or num(r.ll) > 0 then redis.call('PEXPIRE', T .. 'att:' .. r.id, retention) end
  count('pending', -1)
  count(field, 1)
  if field == 'delivered' then tally(subscriber(r.sb), 1) end
end

-- bury makes a pending delivery a dead letter: kept until an operator or the
-- retention removes it, its payload (if there is one) pinned beside it.
local function bury(r, reason, body)
  redis.call('ZREM', T .. 'pend:' .. r.sb, r.id)
  r.st, r.en, r.wk, r.rs = 'x', NOWS, '-', reason
  save(r)
  redis.call('ZADD', T .. 'dead', NOWS, r.id)
  redis.call('ZADD', T .. 'dead:' .. r.sb, NOWS, r.id)
  if body ~= '' then
    redis.call('SADD', T .. 'pins:' .. r.ev, r.id)
    redis.call('SETNX', T .. 'pin:' .. r.ev, body)
  end
  if r.rg ~= '0' then leave(r, 'dead') end
  count('pending', -1)
  count('dead', 1)
end

-- note keeps the evidence of an attempt: the first 10 and the last 40.
local function note(r, attempt)
  if attempt == '' then return end
  local key = T .. 'att:' .. r.id
  if redis.call('LLEN', key) >= 50 then
    local eleventh = redis.call('LINDEX', key, 10)
    redis.call('LREM', key, 1, eleventh)
  end
  redis.call('RPUSH', key, attempt)
  r.noted = true
end
