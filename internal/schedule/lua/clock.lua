-- clock.lua: what every transition begins with. Scripts are put together from
-- parts: script.go says which.
--
-- KEYS[1] is the prefix of the partition, such as "{fo:3.7}:". All keys of a
-- script begin with it, so all stand on one slot; every key is listed in
-- docs/redis.md.
--
-- Three habits keep the scripts safe:
--   * Each may run twice with the same arguments (a lost reply): a check of the
--     record decides, so that the second run has no second effect.
--   * Reads and checks come before the first write, and the first write of a
--     transition that ends something is a removal: over maxmemory Redis refuses a
--     script whose first write adds and lets one go on that began by removing.
--   * Where things stand is never edited but derived: touch(s) marks a
--     subscriber, finish() puts it where its state says that it belongs.

local T = KEYS[1]

-- now is the one clock, in ms since the epoch. Only tests can move it: see
-- clock.go.
local function now()
  local t = redis.call('TIME')
  local ms = t[1] * 1000 + math.floor(t[2] / 1000)
  --[[TEST CLOCK]]
  return ms
end

local NOW = now()

-- Where a number is written, it is written by %d: Lua's own way takes 0.6 us for a
-- time, this one 0.15 us, and a delivery's road has a dozen of them.
local format = string.format
local NOWS = format('%d', NOW)
