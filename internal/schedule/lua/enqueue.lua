-- enqueue.lua: make events' deliveries to subscribers of this partition.
--
-- KEYS[1]  prefix of the partition
-- ARGV     retention (ms), then per event:
--          id, accepted_at, expand_by, bury 0|1, body, n,
--          then n deliveries: id, subscriber id, expires_at
-- Returns  two numbers per event: how many were new (-1: expand_by has passed and
--          nothing was done), how many were left out because their subscriber is on
--          hold and holds its fill
--
-- Those left out are dead letters, for which the payload is needed, and that is in
-- another slot: the caller comes again with bury and the body (empty if it is gone).
--
-- Run twice, the second run finds the records and does nothing. That is why it
-- is refused after expand_by, when a record may have been forgotten.
local retention = ARGV[1]
local filled = {} -- pending deliveries of one on hold

-- What is made is gathered, and written at the end with few calls: all records with one,
-- and two for each subscriber.
local records, made, lanes = {}, {}, {}

local function store(id, sub, accepted, exp, text)
  local n = #records
  records[n + 1], records[n + 2] = T .. 'd:' .. id, text
  made[id] = true
  local l = lanes[sub]
  if not l then
    l = {pend = {}, queue = {}, first = math.huge}
    lanes[sub] = l
  end
  n = #l.pend
  l.pend[n + 1], l.pend[n + 2] = exp, id
  l.queue[n + 1], l.queue[n + 2] = accepted, id
  l.first = math.min(l.first, num(exp))
  count('accepted', 1)
  count('pending', 1)
end

-- write stores what was gathered of one subscriber.
local function write(sub, l)
  redis.call('ZADD', T .. 'pend:' .. sub, unpack(l.pend))
  redis.call('ZADD', T .. 'q:f:' .. sub, unpack(l.queue))
  local expiry = redis.call('ZSCORE', T .. 'expiry', sub)
  if not expiry or l.first < num(expiry) then redis.call('ZADD', T .. 'expiry', format('%d', l.first), sub) end
  -- Behind others it changes nothing of where the subscriber stands.
  if not subs[sub] and made[redis.call('ZRANGE', T .. 'q:f:' .. sub, '0', '0')[1]] then touch(subscriber(sub), 'f') end
end

-- behind says whether others of the subscriber wait already for no more than a turn or
-- for its cap. One more behind them changes nothing of where it stands, so the rest of
-- what is known of it is not even read: half of the time saved for each delivery of a
-- backlog (15 us of 31).
local waits = {} -- what was found, by subscriber
local function behind(sub)
  if subs[sub] then return false end
  if waits[sub] == nil then
    local h = redis.call('HMGET', T .. 'sub:' .. sub, 'terms', 'run', 'guard', 'tomb')
    waits[sub] = h[1] and h[2] and not h[3] and not h[4] and string.sub(h[1], -1) == '0' and
      string.find(h[2], ' %S[ysl]%S%S ?%d*$') ~= nil
  end
  return waits[sub]
end

-- make_one makes one delivery; false if it is left out.
local function make_one(event, accepted, bury_now, body, id, sub, exp)
  local text = fold(accepted, exp, event, sub)
  if behind(sub) then
    store(id, sub, accepted, exp, text)
    return true
  end
  local s = subscriber(sub)
  if not s or s.tomb then
    -- Deleted between plan and enqueue: accepted, and cancelled at once.
    local r = decode(id, text)
    r.st, r.en = 'c', NOWS
    redis.call('SET', T .. 'd:' .. id, encode(r), 'PX', retention)
    count('accepted', 1)
    count('cancelled', 1)
    return true
  end
  if on_hold(s) then
    filled[sub] = filled[sub] or redis.call('ZCARD', T .. 'pend:' .. sub)
    if filled[sub] >= num(s.mh) then
      if not bury_now then return false end
      count('accepted', 1)
      count('pending', 1) -- for as long as it takes to bury it
      bury(decode(id, text), 'held_full', body)
      return true
    end
    filled[sub] = filled[sub] + 1
  end
  store(id, sub, accepted, exp, text)
  touch(s, 'f')
  return true
end

local out = {}
local i = 2
while i <= #ARGV do
  local event, accepted, by, bury_now, body, n = unpack(ARGV, i, i + 5)
  local first, last = i + 6, i + 3 + 3 * tonumber(n)
  i = last + 3
  if NOW > tonumber(by) then
    out[#out + 1], out[#out + 2] = -1, 0
  else
    local keys, fresh, full = {}, 0, 0
    for k = first, last, 3 do keys[#keys + 1] = T .. 'd:' .. ARGV[k] end
    for k, there in ipairs(redis.call('MGET', unpack(keys))) do
      if not there and not made[ARGV[first + (k - 1) * 3]] then
        local at = first + (k - 1) * 3
        if make_one(event, accepted, bury_now == '1', body, ARGV[at], ARGV[at + 1], ARGV[at + 2]) then
          fresh = fresh + 1
        else
          full = full + 1
        end
      end
    end
    out[#out + 1], out[#out + 2] = fresh, full
  end
end
if #records > 0 then redis.call('MSET', unpack(records)) end
for sub, l in pairs(lanes) do write(sub, l) end
finish()
return out
