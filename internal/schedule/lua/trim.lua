-- trim.lua: forget dead letters past their retention, evidence and payload too.
--
-- KEYS[1]  prefix of the partition
-- ARGV     retention (ms), limit
-- Returns  how many were forgotten
--
-- One that a cohort has claimed is kept until the cohort lets go of it.
-- The ledger stays as it is: `dead` counts how deliveries ended, not what is kept.
-- Run twice, the second run finds them gone.
local ids = redis.call('ZRANGEBYSCORE', T .. 'dead', '-inf', NOW - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
local n = 0
for _, id in ipairs(ids) do
  if redis.call('HEXISTS', T .. 'claims', id) == 0 then
    forget(id, record(id))
    n = n + 1
  end
end
return n
