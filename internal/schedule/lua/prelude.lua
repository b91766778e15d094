-- prelude.lua: what every transition shares. It is put in front of each script.
--
-- KEYS[1] is the prefix of the partition, such as "{fo:3.7}:". All keys of a
-- script begin with it, so all stand on one slot; every key is listed in
-- docs/redis.md.
--
-- Three habits keep the scripts safe:
--   * Each may run twice with the same arguments (a lost reply): a check of the
--     record decides, so that the second run has no second effect.
--   * Reads and checks come before the first write, and the first write of a
--     transition that ends something is a removal: over maxmemory Redis refuses a
--     script whose first write adds and lets one go on that began by removing.
--   * Where things stand is never edited but derived: touch(s) marks a
--     subscriber, finish() puts it where its state says that it belongs.

local T = KEYS[1]
local LANES = {'f', 'r', 'd'} -- fresh, retry, redrive, in order of service

-- now is the one clock, in ms since the epoch. Only tests can move it: see
-- clock.go.
local function now()
  local t = redis.call('TIME')
  local ms = t[1] * 1000 + math.floor(t[2] / 1000)
  --[[TEST CLOCK]]
  return ms
end

local NOW = now()

-------------------------------------------------------------------------------
-- Records. A delivery is one string of 22 words. record.go reads the same.

-- Anything else is damaged, and treated as missing: it blocks nobody, and the audit
-- finds its places without a record.
local WORDS = '^([sldxc]) ([frd])' .. string.rep(' (%d+)', 15) .. string.rep(' (%S+)', 5) .. '$'

local function decode(id, text)
  local st, ln, due, exp, acc, at, dc, se, rl, ll, rg, bb, bu, fa, la, en, hs, oc, rs, wk, ev, sb =
    string.match(text, WORDS)
  if not st then return nil end
  local n = tonumber
  return {
    id = id, ev = ev, sb = sb,
    st = st,           -- state: s scheduled, l leased, d delivered, x dead, c cancelled
    ln = ln,           -- lane: f, r, d
    due = n(due),      -- next attempt, ms
    exp = n(exp),      -- expires_at, ms
    acc = n(acc),      -- accepted_at, ms
    at = n(at),        -- attempts charged
    dc = n(dc),        -- delivery_count: leases ever taken, the fence
    se = n(se),        -- highest fence at which a worker's verdict was applied
    rl = n(rl),        -- releases
    ll = n(ll),        -- lease losses
    rg = n(rg),        -- redrive_generation
    bb = n(bb), bu = n(bu), -- where the generation's budget began, and how much it is
    fa = n(fa), la = n(la), -- first and last attempt, ms, 0 for none
    en = n(en),        -- when it became final, ms
    hs = n(hs), oc = oc, -- last HTTP status and outcome
    rs = rs,           -- reason of a dead one
    wk = wk,           -- worker that holds the lease
  }
end

local function encode(r)
  return table.concat({r.st, r.ln, r.due, r.exp, r.acc, r.at, r.dc, r.se, r.rl, r.ll, r.rg, r.bb,
    r.bu, r.fa, r.la, r.en, r.hs, r.oc, r.rs, r.wk, r.ev, r.sb}, ' ')
end

local function record(id)
  local text = redis.call('GET', T .. 'd:' .. id)
  return text and decode(id, text)
end

local function save(r)
  redis.call('SET', T .. 'd:' .. r.id, encode(r))
end

-------------------------------------------------------------------------------
-- Subscribers. What the scheduler knows of one is a small hash.

local subs = {}    -- loaded in this run, by id
local touched = {} -- to be put in place by finish()

local function queue(s, lane)
  return T .. 'q:' .. lane .. ':' .. s.id
end

local function subscriber(id)
  if subs[id] then return subs[id] end
  local h = redis.call('HMGET', T .. 'sub:' .. id,
    'v', 'cls', 'cap', 'lt', 'hold', 'tomb', 'n', 'vt', 'turn', 'pf', 'pr', 'pd')
  if not h[1] then return nil end
  local s = {
    id = id, v = h[1], cls = h[2],
    cap = tonumber(h[3]),      -- most leases at once
    lt = tonumber(h[4]),       -- lease time, ms
    hold = h[5] or '',         -- '' or the holds it is on: p paused
    tomb = h[6] == '1',        -- deleted
    n = tonumber(h[7] or 0),   -- leases open now
    vt = tonumber(h[8] or 0),  -- virtual time: service received so far
    turn = tonumber(h[9] or 0),
    place = {f = h[10] or '-', r = h[11] or '-', d = h[12] or '-'},
  }
  subs[id] = s
  return s
end

-- next_generation numbers a change of a subscriber. By the clock, so that a number
-- is not given twice although Redis was set back to an older state in between:
-- readers ask for what changed after the last one that they saw.
local function next_generation()
  local gen = math.max(tonumber(redis.call('GET', T .. 'gen') or 0) + 1, NOW)
  redis.call('SET', T .. 'gen', gen)
  return gen
end

local function touch(s)
  if s then touched[s.id] = s end
end

-- The kind of age gauge that a place belongs to: eligible, limited, held.
local KIND = {q = 'e', y = 'e', l = 'l', h = 'h'}

local function age_key(s, place, lane)
  return T .. 'age:' .. KIND[place] .. ':' .. s.cls .. ':' .. lane
end

local function displace(s, lane, place)
  if place == 'q' then redis.call('ZREM', T .. 'due:' .. lane, s.id) end
  if place == 'y' then redis.call('ZREM', T .. 'ready:' .. lane, s.id) end
end

local vclock -- virtual time of the partition: that of the last turn given
local woke = false

local function virtual_now()
  if not vclock then vclock = tonumber(redis.call('GET', T .. 'vclock') or 0) end
  return vclock
end

-- put stands a subscriber's lane in the one place that follows from its state:
--   -  nothing waits here, or it is deleted
--   h  held: something waits, the subscriber is on hold
--   l  limited: something waits, the subscriber is at its cap
--   q  in due: the head falls due later
--   y  in ready: the head is due, and waits for the subscriber's turn
local function put(s, lane)
  local head = redis.call('ZRANGE', queue(s, lane), 0, 0, 'WITHSCORES')
  local due = tonumber(head[2])
  local was, is = s.place[lane], nil
  if not due or s.tomb then is = '-'
  elseif s.hold ~= '' then is = 'h'
  elseif s.n >= s.cap then is = 'l'
  elseif due > NOW then is = 'q'
  else is = 'y' end

  if was ~= is then displace(s, lane, was) end
  if KIND[was] and KIND[was] ~= KIND[is] then redis.call('ZREM', age_key(s, was, lane), s.id) end
  if is ~= '-' then redis.call('ZADD', age_key(s, is, lane), due, s.id) end
  if is == 'q' then redis.call('ZADD', T .. 'due:' .. lane, due, s.id) end
  if is == 'y' then
    -- One that comes back enters at the current virtual time: it neither claims
    -- the turns that it did not use nor waits behind those that it did.
    s.vt = math.max(s.vt, virtual_now())
    redis.call('ZADD', T .. 'ready:' .. lane, s.vt, s.id)
    if was ~= 'y' then woke = true end
  end
  s.place[lane] = is
end

local function put_all(s)
  for _, lane in ipairs(LANES) do put(s, lane) end
  redis.call('HSET', T .. 'sub:' .. s.id, 'n', s.n, 'vt', s.vt, 'turn', s.turn,
    'pf', s.place.f, 'pr', s.place.r, 'pd', s.place.d)
end

-------------------------------------------------------------------------------
-- Ledger: accepted = pending + delivered + dead + cancelled, at every instant.

local deltas = {}

local function count(field, delta)
  deltas[field] = (deltas[field] or 0) + delta
end

-- finish writes what the run has gathered: the ledger, the places of the touched
-- subscribers, and a wake-up if one of them became ready.
local function finish()
  for field, delta in pairs(deltas) do
    if delta ~= 0 then redis.call('HINCRBY', T .. 'ledger', field, delta) end
  end
  for _, s in pairs(touched) do put_all(s) end
  if woke then redis.call('PUBLISH', 'fo:wake', T) end
end

-------------------------------------------------------------------------------
-- Parts of transitions. Each is called once the checks have passed, and each
-- begins by removing.

-- end_lease closes the lease if it is open, and frees its place under the cap.
local function end_lease(r)
  if redis.call('ZREM', T .. 'leases', r.id) == 1 then
    local s = subscriber(r.sb)
    if s then
      s.n = math.max(0, s.n - 1)
      touch(s)
    end
  end
end

-- unqueue takes a scheduled delivery out of its lane.
local function unqueue(r)
  local s = subscriber(r.sb)
  redis.call('ZREM', T .. 'q:' .. r.ln .. ':' .. r.sb, r.id)
  touch(s)
end

local function enqueue(r)
  local s = subscriber(r.sb)
  redis.call('ZADD', T .. 'q:' .. r.ln .. ':' .. r.sb, r.due, r.id)
  touch(s)
end

-- unpin lets go of the payload that a dead letter held on to.
local function unpin(r)
  redis.call('SREM', T .. 'pins:' .. r.ev, r.id)
  if redis.call('EXISTS', T .. 'pins:' .. r.ev) == 0 then
    redis.call('DEL', T .. 'pin:' .. r.ev)
  end
end

-- close makes a pending delivery final, as d or c; the record stays for retention
-- ms, so that a late verdict and a repeated enqueue still find it.
local function close(r, state, field, retention)
  redis.call('ZREM', T .. 'pend:' .. r.sb, r.id)
  r.st, r.en, r.wk = state, NOW, '-'
  redis.call('SET', T .. 'd:' .. r.id, encode(r), 'PX', retention)
  redis.call('PEXPIRE', T .. 'att:' .. r.id, retention)
  count('pending', -1)
  count(field, 1)
end

-- bury makes a pending delivery a dead letter: kept until an operator or the
-- retention removes it, its payload (if there is one) pinned beside it.
local function bury(r, reason, body)
  redis.call('ZREM', T .. 'pend:' .. r.sb, r.id)
  r.st, r.en, r.wk, r.rs = 'x', NOW, '-', reason
  save(r)
  redis.call('ZADD', T .. 'dead', NOW, r.id)
  redis.call('ZADD', T .. 'dead:' .. r.sb, NOW, r.id)
  if body ~= '' then
    redis.call('SADD', T .. 'pins:' .. r.ev, r.id)
    redis.call('SETNX', T .. 'pin:' .. r.ev, body)
  end
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
end
