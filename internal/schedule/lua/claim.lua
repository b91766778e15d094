-- claim.lua: put dead letters into a cohort, that of an operator's redrive.
--
-- KEYS[1]  prefix of the partition
-- ARGV     cohort, id...
-- Returns  a word per delivery: claimed, taken (it is in another cohort), not_dead,
--          missing
--
-- A claim is what keeps a dead letter from being redriven by two: one live cohort has
-- it. It is not trimmed or discarded while it is claimed.
-- Run twice, the second run finds the claims its own.
local cohort, out = ARGV[1], {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local r = record(id)
  local by = r and redis.call('HGET', T .. 'claims', id)
  if not r then
    out[#out + 1] = 'missing'
  elseif by then
    -- Its own may have gone on since: released, it waits in the lane.
    out[#out + 1] = by == cohort and 'claimed' or 'taken'
  elseif r.st ~= 'x' then
    out[#out + 1] = 'not_dead'
  else
    redis.call('HSET', T .. 'claims', id, cohort)
    redis.call('ZADD', T .. 'cohort:' .. cohort, r.en, id)
    redis.call('HINCRBY', T .. 'tally:' .. cohort, 'claimed', 1)
    out[#out + 1] = 'claimed'
  end
end
return out
