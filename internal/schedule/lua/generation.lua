-- generation.lua: the number of a change of a subscriber.

-- next_generation goes by the clock, so that a number is not given twice although
-- Redis was set back to an older state in between: readers ask for what changed after
-- the last one that they saw.
local function next_generation()
  local gen = math.max(tonumber(redis.call('GET', T .. 'gen') or 0) + 1, NOW)
  redis.call('SET', T .. 'gen', gen)
  return gen
end
