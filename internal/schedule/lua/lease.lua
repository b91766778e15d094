-- lease.lua: hand a worker as many due deliveries as it has free slots.
--
-- KEYS[1]  prefix of the partition
-- ARGV     worker, seq, room in all, room for fresh, for retry, for redrive,
--          quantum (most deliveries a subscriber gets in one turn)
-- Returns  {now, subscribers still ready, next due (0 none), id, record, version, until, ...}
--
-- A lease charges the attempt and raises delivery_count, the fence, before the
-- request can leave: requests on the wire never outnumber leases.
--
-- Run twice with one seq, the second run returns the leases of the first that are
-- still held: a lost reply costs nothing.
local worker, seq, quantum = ARGV[1], ARGV[2], tonumber(ARGV[7])
local total = tonumber(ARGV[3])
local room = {f = tonumber(ARGV[4]), r = tonumber(ARGV[5]), d = tonumber(ARGV[6])}
local memory = T .. 'w:' .. worker
local reply = {NOW, 0, 0}

local function add(r, s)
  reply[#reply + 1] = r.id
  reply[#reply + 1] = encode(r)
  reply[#reply + 1] = s.v
  reply[#reply + 1] = redis.call('ZSCORE', T .. 'leases', r.id)
end

local function close_reply()
  local next_due = 0
  for _, lane in ipairs(LANES) do
    reply[2] = reply[2] + redis.call('ZCARD', T .. 'ready:' .. lane)
    local head = redis.call('ZRANGE', T .. 'due:' .. lane, 0, 0, 'WITHSCORES')
    local due = tonumber(head[2])
    if due and (next_due == 0 or due < next_due) then next_due = due end
  end
  reply[3] = next_due
  return reply
end

-- The same seq again: what it was given, as far as it still holds it.
local past = redis.call('GET', memory)
if past then
  local last = string.match(past, '^%d+')
  if tonumber(seq) < tonumber(last) then
    return redis.error_reply('SEQ ' .. seq .. ' is older than ' .. last)
  end
  if seq == last then
    for id, fence in string.gmatch(past, '(%S+)=(%d+)') do
      local r = record(id)
      if r and r.st == 'l' and r.dc == tonumber(fence) and r.wk == worker then
        add(r, subscriber(r.sb))
      end
    end
    return close_reply()
  end
end

-- known is subscriber(id), but drops one without a hash from the orders of
-- service: state that something else damaged must not stop the partition.
local function known(id)
  local s = subscriber(id)
  if not s then
    for _, lane in ipairs(LANES) do
      redis.call('ZREM', T .. 'due:' .. lane, id)
      redis.call('ZREM', T .. 'ready:' .. lane, id)
    end
  end
  return s
end

-- Promote: subscribers whose head fell due enter `ready`.
for _, lane in ipairs(LANES) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', T .. 'due:' .. lane, '-inf', NOW, 'LIMIT', 0, 64)) do
    -- It may stand in another lane's place already, and be put there again first:
    -- over maxmemory that would be the refused beginning (see the prelude).
    redis.call('ZREM', T .. 'due:' .. lane, id)
    local s = known(id)
    if s then put_all(s) end
  end
end

-- next_turn is the subscriber least served among the heads of the lanes that
-- have room; of equals, the earlier lane.
local function next_turn()
  local best, best_vt
  for _, lane in ipairs(LANES) do
    if room[lane] > 0 then
      local head = redis.call('ZRANGE', T .. 'ready:' .. lane, 0, 0, 'WITHSCORES')
      local vt = tonumber(head[2])
      if vt and (not best or vt < best_vt) then best, best_vt = head[1], vt end
    end
  end
  return best, best_vt
end

local FRESH_FIRST, RETRY_FIRST = {'f', 'r', 'd'}, {'r', 'f', 'd'}
local given = {seq}

-- take leases up to k due deliveries of one lane.
local function take(s, lane, k)
  local ids = redis.call('ZRANGEBYSCORE', queue(s, lane), '-inf', NOW, 'LIMIT', 0, k)
  if #ids == 0 then return 0 end
  local keys, leases, taken = {}, {}, 0
  for i, id in ipairs(ids) do keys[i] = T .. 'd:' .. id end
  local texts = redis.call('MGET', unpack(keys))
  redis.call('ZREM', queue(s, lane), unpack(ids))
  for i, id in ipairs(ids) do
    local r = texts[i] and decode(id, texts[i])
    if r then
      r.st, r.wk = 'l', worker
      r.dc, r.at = r.dc + 1, r.at + 1
      r.la = NOW
      if r.fa == 0 then r.fa = NOW end
      save(r)
      redis.call('ZADD', T .. 'leases', NOW + s.lt, id)
      add(r, s)
      given[#given + 1] = id .. '=' .. r.dc
      taken = taken + 1
    end
  end
  return taken
end

-- serve gives one subscriber its turn.
local function serve(s, vt)
  vclock = math.max(virtual_now(), vt)
  s.turn = s.turn + 1
  -- Fresh first, but one turn in four to retry: under a small cap neither a
  -- stream of new events nor a heap of failures shuts the other out.
  local order = s.turn % 4 == 0 and RETRY_FIRST or FRESH_FIRST
  local k = math.min(quantum, s.cap - s.n, total)
  local taken = 0
  for _, lane in ipairs(order) do
    local most = math.min(k - taken, room[lane])
    if most > 0 then
      local n = take(s, lane, most)
      room[lane] = room[lane] - n
      taken = taken + n
    end
  end
  s.n = s.n + taken
  total = total - taken
  s.vt = math.max(s.vt, vt) + math.max(taken, 1)
  put_all(s) -- back in ready at its new virtual time, or wherever it now belongs
end

while total > 0 do
  local id, vt = next_turn()
  if not id then break end
  local s = known(id)
  if s then serve(s, vt) end
end

if #given > 1 then
  redis.call('SET', T .. 'vclock', vclock)
  redis.call('SET', memory, table.concat(given, ' '), 'PX', 600000)
end
return close_reply()
