-- lease.lua: hand a worker as many due deliveries as it has free slots.
--
-- KEYS[1]  prefix of the partition
-- ARGV     worker, seq, room in all, for fresh, for retry, for redrive, for the slow,
--          free slots of the worker, quantum (most deliveries a subscriber gets in one
--          turn), then pairs: a subscriber, slots of the worker that it holds
-- Returns  {now, subscribers ready, ready but slow, next due (0 none),
--           id, record, version, until, slow 0|1, ...}
--
-- A lease charges the attempt and raises delivery_count, the fence, before the
-- request can leave: requests on the wire never outnumber leases.
--
-- Run twice with one seq, the second run returns the leases of the first that are
-- still held: a lost reply costs nothing.
local worker, seq = ARGV[1], ARGV[2]
local total, free, quantum = tonumber(ARGV[3]), tonumber(ARGV[8]), tonumber(ARGV[9])
local room = {f = tonumber(ARGV[4]), r = tonumber(ARGV[5]), d = tonumber(ARGV[6])}
local slow_room = tonumber(ARGV[7])
local memory = T .. 'w:' .. worker
local reply = {NOW, 0, 0, 0}

local function add(id, text, s, till)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] =
    id, text, s.v, till, (s.open > 0 or slow(s)) and 1 or 0
end

-- What this run has seen of the orders: of ready and slow, that nobody stands there; of
-- due, when its first falls due. It holds until something is put there (fed), and saves
-- the end of the run a third of its calls.
local empty, first_due = {}, {}

local function members(name)
  if empty[name] and not fed[name] then return 0 end
  return redis.call('ZCARD', T .. name)
end

local function close_reply()
  for _, lane in ipairs(LANES) do
    reply[2] = reply[2] + members('ready:' .. lane)
    reply[3] = reply[3] + members('slow:' .. lane)
    local due = first_due[lane]
    if not due or fed['due:' .. lane] then due = head_due(lane) end
    if due > 0 and (reply[4] == 0 or due < reply[4]) then reply[4] = due end
  end
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
      local s = r and subscriber(r.sb)
      if s and r.st == 'l' and r.dc == fence and r.wk == worker then
        add(id, encode(r), s, redis.call('ZSCORE', T .. 'leases', id))
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
      for _, order in ipairs({'due:', 'ready:', 'slow:'}) do redis.call('ZREM', T .. order .. lane, id) end
    end
  end
  return s
end

-- Promote: subscribers whose head fell due, or whose hold or rate may have ended.
for _, lane in ipairs(LANES) do
  local due = head_due(lane)
  if due == 0 or due > NOW then
    first_due[lane] = due
    due = nil
  end
  for _, id in ipairs(due and redis.call('ZRANGEBYSCORE', T .. 'due:' .. lane, '-inf', NOWS, 'LIMIT', '0', '64') or {}) do
    -- It may stand in another lane's place already, and be put there again first:
    -- over maxmemory that would be the refused beginning (see clock.lua).
    redis.call('ZREM', T .. 'due:' .. lane, id)
    local s = known(id)
    if s then
      for _, l in ipairs(LANES) do s.dirty[l] = true end
      put_all(s)
    end
  end
end

-------------------------------------------------------------------------------
-- Whose turn it is: the one least served among the heads of all orders that there
-- is room for. Each is read by the page, and what was put anew since is passed over.

local PAGE = 32
local holds = {} -- slots of this worker that a subscriber holds
for i = 10, #ARGV, 2 do holds[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- A worker's slots are shared out by a dynamic threshold: a subscriber may hold as
-- many as are free. However many hang, and however suddenly, some stay free for those
-- that do not (Choudhury and Hahne 1998, on shared buffers of switches).
local passed = {} -- those that can be given nothing in this call
local function threshold(s)
  return math.ceil((free - (holds[s.id] or 0)) / 2)
end

local orders = {}
for _, lane in ipairs(LANES) do
  orders[#orders + 1] = {lane = lane, name = 'ready:' .. lane, page = {}, at = 1, skip = 0}
  orders[#orders + 1] = {lane = lane, name = 'slow:' .. lane, page = {}, at = 1, skip = 0, slow = true}
end

-- turn_page reads on, behind those that were passed; false at the end.
local function turn_page(o)
  if o.ended and (fed[o.name] or 0) <= o.ended then return false end
  o.page = redis.call('ZRANGE', T .. o.name, o.skip, o.skip + PAGE - 1, 'WITHSCORES')
  o.at, o.since = 1, puts
  o.ended = #o.page < 2 * PAGE and puts
  empty[o.name] = #o.page == 0 and o.skip == 0
  return #o.page > 0
end

-- head is the first of an order that can be served, and its virtual time.
local function head(o)
  while o.at <= #o.page or turn_page(o) do
    local id = o.page[o.at]
    local s = known(id)
    if s and (s.put or 0) <= o.since then
      if not passed[id] and threshold(s) > 0 then return s, tonumber(o.page[o.at + 1]) end
      o.skip = o.skip + 1
    end
    o.at = o.at + 2
  end
end

local function next_turn()
  local best, best_vt
  for _, o in ipairs(orders) do
    if room[o.lane] > 0 and (not o.slow or slow_room > 0) then
      local s, vt = head(o)
      if s and (not best or vt < best_vt) then best, best_vt = s, vt end
    end
  end
  return best, best_vt
end

-------------------------------------------------------------------------------
-- What it gets

local FRESH_FIRST, RETRY_FIRST = {'f', 'r', 'd'}, {'r', 'f', 'd'}
local given = {seq}

-- BEHIND is when a subscriber's fresh lane has a history, ms: from there on every
-- other turn serves it from its newest end. What happens now does not wait for all
-- that an outage has left, nor the other way round.
local BEHIND = 5000

local function due_ids(s, lane, k)
  if lane == 'f' and s.turn % 2 == 1 then
    local oldest = tonumber(redis.call('ZRANGE', queue(s, lane), 0, 0, 'WITHSCORES')[2])
    if oldest and NOW - oldest > BEHIND then
      return redis.call('ZREVRANGEBYSCORE', queue(s, lane), NOWS, '-inf', 'LIMIT', '0', k)
    end
  end
  return redis.call('ZRANGEBYSCORE', queue(s, lane), '-inf', NOWS, 'LIMIT', '0', k)
end

-- charge leases one delivery: its record as it is from now on, and its fence. A first
-- lease, which is what most are, is a change of a letter and a history at the end: 1 us,
-- where to take a record apart and put it together again is 6.
local FIRST = ' 1 1 0 0 0 0 0 0 ' .. NOWS .. ' ' .. NOWS .. ' 0 0 - - ' .. worker

local function charge(id, text)
  local acc, seconds, ev, sb = string.match(text, SHORT)
  if acc then
    local exp = format('%d', acc + seconds * 1000)
    return 'lf ' .. acc .. ' ' .. exp .. ' evt_' .. ev .. ' sub_' .. sb .. ' ' .. acc .. FIRST, '1'
  end
  acc = string.match(text, '^s%a (%d+) %d+ %S+ %S+$')
  if acc then return 'l' .. string.sub(text, 2) .. ' ' .. acc .. FIRST, '1' end
  local r = decode(id, text)
  if not r then return nil end
  r.st, r.wk = 'l', worker
  r.dc, r.at = plus(r.dc, 1), plus(r.at, 1)
  r.la = NOWS
  if r.fa == '0' then r.fa = NOWS end
  return encode(r), r.dc
end

-- take leases deliveries of one lane, and says how many.
local function take(s, lane, ids)
  if #ids == 0 then return 0 end
  local keys, leases, records, till = {}, {}, {}, plus(NOW, s.lt)
  for i, id in ipairs(ids) do keys[i] = T .. 'd:' .. id end
  local texts = redis.call('MGET', unpack(keys))
  redis.call('ZREM', queue(s, lane), unpack(ids))
  for i, id in ipairs(ids) do
    local text, fence
    if texts[i] then text, fence = charge(id, texts[i]) end
    if text then
      local n = #leases
      leases[n + 1], leases[n + 2] = till, id
      records[n + 1], records[n + 2] = keys[i], text
      add(id, text, s, till)
      given[#given + 1] = id .. '=' .. fence
    end
  end
  if #leases > 0 then
    redis.call('MSET', unpack(records))
    redis.call('ZADD', T .. 'leases', unpack(leases))
  end
  return #leases / 2
end

-- probe takes the one delivery that an open breaker lets through: the one with the
-- fewest attempts, fresh first, and never the same twice running if there is another.
-- So none is spent on finding out, and one that harms the endpoint does not keep the
-- breaker open. Every third probe is a retry, for endpoints that fail at whatever they
-- see for the first time.
local function probe(s)
  local order = s.step % 3 == 0 and RETRY_FIRST or FRESH_FIRST
  for _, other in ipairs({true, false}) do
    for _, lane in ipairs(order) do
      local best, fewest
      if room[lane] > 0 then
        local ids = redis.call('ZRANGEBYSCORE', queue(s, lane), '-inf', NOWS, 'LIMIT', '0', '16')
        for _, id in ipairs(ids) do
          local r = (id ~= s.last) == other and record(id)
          if r and (not best or num(r.at) < fewest) then best, fewest = id, num(r.at) end
        end
      end
      if best and take(s, lane, {best}) == 1 then
        s.probe, s.troubled = best, true
        return lane
      end
    end
  end
end

-- fill takes up to k from the lanes.
local function fill(s, k)
  -- Fresh first, but one turn in four to retry: under a small cap neither a
  -- stream of new events nor a heap of failures shuts the other out.
  local order = s.turn == 0 and RETRY_FIRST or FRESH_FIRST
  local taken = 0
  for _, lane in ipairs(order) do
    local most = math.min(k - taken, room[lane])
    if most > 0 and s.place[lane] ~= '-' then
      local n = take(s, lane, due_ids(s, lane, most))
      room[lane] = room[lane] - n
      taken = taken + n
    end
  end
  return taken
end

-- serve gives one subscriber its turn, and puts it back where it now belongs: in
-- ready at its new virtual time, or elsewhere.
local function serve(s, vt)
  vclock = math.max(virtual_now(), vt)
  s.turn = (s.turn + 1) % 4
  local is_slow, taken = s.open > 0 or slow(s), 0
  local most = math.min(quantum, total, is_slow and slow_room or total, threshold(s))
  if s.open > 0 then
    local lane = probe(s)
    if lane then room[lane], taken = room[lane] - 1, 1 end
  else
    taken = fill(s, math.min(most, cap(s) - s.n, tokens(s)))
  end
  if taken == 0 then passed[s.id] = true end
  if s.em > 0 then s.tat = math.max(s.tat, NOW) + taken * s.em end
  if is_slow then slow_room = slow_room - taken end
  s.n, total, free = s.n + taken, total - taken, free - taken
  holds[s.id] = (holds[s.id] or 0) + taken
  s.vt = math.max(s.vt, vclock) + taken
  for _, lane in ipairs(LANES) do s.dirty[lane] = s.place[lane] ~= '-' end
  put_all(s)
end

while total > 0 do
  local s, vt = next_turn()
  if not s then break end
  serve(s, vt)
end

if #given > 1 then
  redis.call('SET', T .. 'vclock', format('%d', vclock))
  redis.call('SET', memory, table.concat(given, ' '), 'PX', 600000)
end
close_reply()
woke = woke and reply[2] + reply[3] > 0 -- else nothing is left that others need know of
finish()
return reply
