-- page.lua: read on in an order of deliveries, behind the last one that a reader saw.
--
-- KEYS[1]  prefix of the partition
-- ARGV     name of the order, +1 upwards or -1 downwards, limit,
--          score and id of the last one that was seen ('' and '' for the beginning)
-- Returns  {id, score, ...}
--
-- The reader's place is the last delivery itself, not a number: what comes and goes
-- elsewhere in the order moves nobody. If it is gone from there, its place is found
-- again by score and id, as the order itself goes by them.
local key, up, limit = T .. ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local score, id = ARGV[4], ARGV[5]

-- place is how many stand before the reader, counted upwards.
local function place()
  local first = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local behind = first + redis.call('ZCOUNT', key, score, score)
  -- Of those with its score, the first whose id is above: log n looks.
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    local at = redis.call('ZRANGE', key, middle, middle)[1]
    if at < id or (up and at == id) then first = middle + 1 else behind = middle end
  end
  return first
end

if up then
  local from = score ~= '' and place() or 0
  return redis.call('ZRANGE', key, from, from + limit - 1, 'WITHSCORES')
end
local total = redis.call('ZCARD', key)
local till = score ~= '' and place() or total
return redis.call('ZREVRANGE', key, total - till, total - till + limit - 1, 'WITHSCORES')
