-- trim.lua: forget dead letters past their retention, evidence and payload too.
--
-- KEYS[1]  prefix of the partition
-- ARGV     retention (ms), limit
-- Returns  how many were forgotten
--
-- One that a cohort has claimed is kept until the cohort lets go of it.
-- The ledger stays as it is: `dead` counts how deliveries ended, not what is kept.
-- Run twice, the second run finds them gone.
local limit, passed, n = tonumber(ARGV[2]), 0, 0
for _ = 1, 20 do -- pages: claimed ones at the head must not keep the others for ever
  local ids = redis.call('ZRANGEBYSCORE', T .. 'dead', '-inf', NOW - tonumber(ARGV[1]), 'LIMIT', passed, limit - n)
  for _, id in ipairs(ids) do
    if redis.call('HEXISTS', T .. 'claims', id) == 0 then
      forget(id, record(id))
      n = n + 1
    else
      passed = passed + 1
    end
  end
  if #ids == 0 or n >= limit then break end
end
return n
