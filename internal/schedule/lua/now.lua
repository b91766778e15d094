-- now.lua: the clock.
--
-- KEYS[1]  prefix of any partition
-- ARGV     none
-- Returns  now, ms since the epoch
return NOW
