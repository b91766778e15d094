-- report.lua: keep what a dispatcher says of itself.
--
-- KEYS[1]  prefix of the workers, "{fo:workers}:"
-- ARGV     worker, report (opaque)
-- Returns  1
--
-- One that has said nothing for a minute is forgotten by the next one's report. Run
-- twice, the second run says the same again.
local key = T .. 'reports'
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local at = string.match(all[i + 1], '^(%d+) ')
  if not at or at + 60000 < NOW then redis.call('HDEL', key, all[i]) end
end
redis.call('HSET', key, ARGV[1], NOWS .. ' ' .. ARGV[2])
return 1
