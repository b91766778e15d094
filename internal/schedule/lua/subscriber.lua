-- subscriber.lua: what the scheduler knows of a subscriber, and where that puts it.
--
-- One hash each: `terms` from its config, `run` what changes with every lease and
-- settle, `guard` what only trouble changes, and so is not there without any;
-- `delivered`, how many deliveries were.

local LANES = {'f', 'r', 'd'} -- fresh, retry, redrive, in order of service

local TERMS = '^(%S+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+) ([01])$'
local RUN = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S)(%S)(%S)(%S) ?(%d*)$'
local GUARD = '^(%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+)$'

local subs = {}    -- loaded in this run, by id
local touched = {} -- to be put in place by finish()
local deltas = {}  -- of the ledger
local falls = {}   -- how many more deliveries fall due, by minute: see transition.lua

-- trouble reads what is there of a subscriber only if it ever had any.
local function trouble(s, text)
  s.disabled = false          -- it answered 410
  s.cut, s.fails = 0, 0       -- when the cap was halved last, 0 for never; consecutive
                              -- failures blamed on the endpoint
  s.throttled = 0             -- until when it asked to be left alone
  s.open, s.step = 0, 0       -- breaker: until when it is open, 0 closed; how often in a row
  s.probe, s.last = '-', '-'  -- its probe that is out, and the one before
  s.changed = 0               -- when it opened or closed last
  s.since, s.held = 0, 0      -- on hold since, 0 for not; deliveries counted as held
  s.moved = 0                 -- when its URL changed last
  if not text then return end
  local cut, fails, disabled, throttled, open, step, changed, since, held, moved
  cut, fails, disabled, throttled, open, step, s.probe, s.last, changed, since, held, moved = string.match(text, GUARD)
  s.disabled = disabled == '1'
  s.cut, s.fails, s.throttled = cut + 0, fails + 0, throttled + 0
  s.open, s.step, s.changed = open + 0, step + 0, changed + 0
  s.since, s.held, s.moved = since + 0, held + 0, moved + 0
end

local function subscriber(id)
  if subs[id] then return subs[id] end
  local h = redis.call('HMGET', T .. 'sub:' .. id, 'v', 'terms', 'run', 'guard', 'tomb', 'delivered')
  if not h[2] or not h[3] then return nil end
  local cls, max, lt, em, burst, bf, mh, paused = string.match(h[2], TERMS)
  local n, vt, turn, win, lat, tat, stood, pf, pr, pd, freed = string.match(h[3], RUN)
  local s = {
    id = id, v = h[1], cls = cls, tomb = h[5] == '1', paused = paused == '1',
    max = max + 0,       -- max_in_flight
    lt = lt,             -- lease time, ms
    em = em + 0,         -- ms between attempts at its rate, 0 without one
    burst = burst + 0,   -- attempts that may go at once under a rate
    bf = bf, mh = mh,    -- breaker_failures and max_held, as strings
    n = n + 0,           -- leases open now
    vt = vt + 0,         -- virtual time: service received so far
    turn = turn + 0,     -- of the last four turns, which this was
    win = win + 0,       -- in-flight cap as it stands, in 1/10000
    lat = lat + 0,       -- how long an attempt takes, ms; 0: not known
    tat = tat + 0,       -- when its next token would be due at its rate (GCRA)
    stood = stood, place = {f = pf, r = pr, d = pd}, dirty = {},
    freed = freed == '' and 0 or freed + 0, -- when it was last let off a hold, its cap or its rate; 0: never held
    delivered = (h[6] or 0) + 0, -- over all time
  }
  trouble(s, h[4])
  subs[id] = s
  return s
end

local function guard(s)
  return format('%d %d %d %d %d %d %s %s %d %d %d %d', s.cut, s.fails, s.disabled and 1 or 0, s.throttled, s.open,
    s.step, s.probe, s.last, s.changed, s.since, s.held, s.moved)
end

-- touch marks a subscriber to be put in place; with a lane, because that lane's
-- deliveries changed.
local function touch(s, lane)
  if not s then return end
  touched[s.id] = s
  if lane then s.dirty[lane] = true end
end

-- tally counts deliveries that were made to a subscriber. Whatever delivers touches it
-- all the same, so it costs a word in what is written then.
local function tally(s, n)
  if not s then return end
  s.delivered, s.tallied = s.delivered + n, true
  touch(s)
end

local function queue(s, lane)
  return T .. 'q:' .. lane .. ':' .. s.id
end

local function count(field, delta)
  deltas[field] = (deltas[field] or 0) + delta
end

-------------------------------------------------------------------------------
-- Where it stands

-- cap is how many leases it may have at once.
local function cap(s)
  return math.min(s.max, math.floor(s.win / 10000))
end

-- slow ones share a part of a worker's slots: who takes long, and who is not
-- known. 1 s, as most endpoints answer in a tenth of it.
local function slow(s)
  return s.lat == 0 or s.lat > 1000
end

-- tokens is how many attempts its rate allows now (GCRA: the burst, less what is
-- owed of it).
local function tokens(s)
  if s.em == 0 then return s.max end
  return math.floor((s.burst * s.em - math.max(0, s.tat - NOW)) / s.em + 0.000001)
end

local function on_hold(s)
  return s.paused or s.disabled or s.open > 0 or s.throttled > NOW
end

-- standing says how the subscriber may be served now, as the place where a lane
-- with a due head belongs, and until when if that ends by itself:
--   -  not at all: it is deleted
--   h  held, until somebody or a probe ends that
--   u  held until a time: throttled, or its breaker open
--   p  its breaker lets one probe through
--   l  limited: at its cap
--   t  limited: it has used its rate, until the next token
--   y  may be served;  s  the same, from the slots for the slow
local function standing(s)
  if s.tomb then return '-' end
  if s.paused or s.disabled or s.probe ~= '-' then return 'h' end
  local till = math.max(s.throttled, s.open)
  if till > NOW then return 'u', till end
  if s.n >= cap(s) then return s.open > 0 and 'h' or 'l' end
  if tokens(s) < 1 then
    return s.open > 0 and 'u' or 't', math.ceil(s.tat - (s.burst - 1) * s.em)
  end
  if s.open > 0 then return 'p' end
  return slow(s) and 's' or 'y'
end

-- What a place means: the age gauge that it counts in, and the order that it is in.
local KIND = {q = 'e', y = 'e', s = 'e', l = 'l', t = 'l', h = 'h', u = 'h', p = 'h'}
local ORDER = {q = 'due:', u = 'due:', t = 'due:', y = 'ready:', s = 'slow:', p = 'slow:'}
local READY = {y = true, s = true, p = true}

local woke = false
local puts = 0 -- counts what was put, and fed when an order last got one: lease.lua must
local fed = {} -- know what it has read before
local vclock   -- virtual time of the partition: that of the last turn given

local function virtual_now()
  if not vclock then vclock = (redis.call('GET', T .. 'vclock') or 0) + 0 end
  return vclock
end

local function age_key(s, place, lane)
  return T .. 'age:' .. KIND[place] .. ':' .. s.cls .. ':' .. lane
end

-- displace takes a lane out of the order that it stands in.
local function displace(s, lane)
  local order = ORDER[s.place[lane]]
  if order then redis.call('ZREM', T .. order .. lane, s.id) end
end

-- put stands a subscriber's lane in the one place that follows from its state.
local function put(s, lane, stands, till)
  local was, is, at = s.place[lane], stands, till
  local head = redis.call('ZRANGE', queue(s, lane), 0, 0, 'WITHSCORES')
  local due = head[2] and head[2] + 0
  if not due then is = '-'
  elseif due > NOW and (is == 'y' or is == 's') then is = 'q'
  elseif due > NOW and is == 'p' then is = 'u' end

  if ORDER[was] ~= ORDER[is] then displace(s, lane) end
  if KIND[was] and KIND[was] ~= KIND[is] then redis.call('ZREM', age_key(s, was, lane), s.id) end
  -- What waits for a worker waits since it is due and nothing else is waited for: the
  -- history of an outage is not late the moment it ends, nor is the backlog of one at its
  -- cap each time a lease of it ends.
  if is ~= '-' then
    local waits = KIND[is] == 'e' and s.freed > due and format('%d', s.freed) or head[2]
    redis.call('ZADD', age_key(s, is, lane), waits, s.id)
  end
  if READY[is] then
    -- One that comes back enters at the current virtual time: it neither claims
    -- the turns that it did not use nor waits behind those that it did.
    -- One that nobody knows, and a probe, go before the slow that they share slots
    -- with: else they wait until each of these has had its turn.
    s.vt = math.max(s.vt, virtual_now() - ((s.lat == 0 or is == 'p') and 1 or 0))
    redis.call('ZADD', T .. ORDER[is] .. lane, format('%d', s.vt), s.id)
    fed[ORDER[is] .. lane] = puts
    if not READY[was] then woke = true end
  elseif ORDER[is] then
    redis.call('ZADD', T .. 'due:' .. lane, format('%d', math.max(due, at or 0)), s.id)
    fed['due:' .. lane] = puts
  end
  s.place[lane] = is
end

-- count_held notes that a hold began or ended, and how many deliveries wait for it. A
-- throttle for which none waits is no matter: it ends by itself, and nobody would look.
local function count_held(s)
  local holds = on_hold(s) and not s.tomb
  if not holds and s.since == 0 then return end
  local waiting = holds and redis.call('ZCARD', T .. 'pend:' .. s.id) or 0
  holds = holds and (s.paused or s.disabled or s.open > 0 or waiting > 0)
  if holds and s.since == 0 then
    s.since = NOW
    redis.call('ZADD', T .. 'held', NOWS, s.id)
  elseif not holds and s.since > 0 then
    s.since = 0
    redis.call('ZREM', T .. 'held', s.id)
  elseif waiting == s.held then
    return
  end
  count('held', waiting - s.held)
  s.held, s.troubled = waiting, true
end

-- put_all puts all lanes in place whose deliveries changed, or all if how the
-- subscriber stands did.
local function put_all(s)
  puts = puts + 1
  s.put = puts
  count_held(s)
  local stands, till = standing(s)
  if KIND[stands] == 'e' and KIND[s.stood] and KIND[s.stood] ~= 'e' then s.freed = NOW end
  for _, lane in ipairs(LANES) do
    if s.dirty[lane] or (s.place[lane] ~= '-' and (stands ~= s.stood or till)) then
      put(s, lane, stands, till)
      s.dirty[lane] = false
    end
  end
  s.stood = stands
  local run = format('%d %d %d %d %d %s %s%s%s%s', s.n, s.vt, s.turn, s.win, s.lat,
    s.tat == 0 and '0' or format('%.3f', s.tat), stands, s.place.f, s.place.r, s.place.d)
  if s.freed > 0 then run = run .. format(' %d', s.freed) end
  local fields = {'run', run}
  if s.troubled then fields[3], fields[4] = 'guard', guard(s) end
  if s.tallied then
    local n = #fields
    fields[n + 1], fields[n + 2] = 'delivered', format('%d', s.delivered)
  end
  redis.call('HSET', T .. 'sub:' .. s.id, unpack(fields))
  s.troubled, s.tallied = false, false
end

-- finish writes what the run has gathered: the places of the touched subscribers, what
-- falls due when, the ledger (accepted = pending + delivered + dead + cancelled, at every instant),
-- and a wake-up if one of them became ready.
local function finish()
  for _, s in pairs(touched) do put_all(s) end
  for minute, n in pairs(falls) do
    local hour = math.floor(minute / 60)
    local key = T .. 'falls:' .. format('%d', hour)
    -- The first of its minute says when all of its hour is over.
    if n ~= 0 and redis.call('HINCRBY', key, format('%d', minute % 60), n) == n then
      redis.call('PEXPIRE', key, format('%d', (hour + 1) * 3600000 - NOW))
    end
  end
  for field, delta in pairs(deltas) do
    if delta ~= 0 then redis.call('HINCRBY', T .. 'ledger', field, delta) end
  end
  if woke then redis.call('PUBLISH', 'fo:wake', T) end
end

-- head_due is when the first of a lane falls due, or its hold or rate may end; 0 for
-- nothing.
local function head_due(lane)
  local head = redis.call('ZRANGE', T .. 'due:' .. lane, '0', '0', 'WITHSCORES')
  return head[2] and head[2] + 0 or 0
end

-- next_due is the soonest of all lanes.
local function next_due()
  local soonest = 0
  for _, lane in ipairs(LANES) do
    local at = head_due(lane)
    if at > 0 and (soonest == 0 or at < soonest) then soonest = at end
  end
  return soonest
end
