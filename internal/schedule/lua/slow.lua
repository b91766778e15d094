-- slow.lua: note that attempts of these subscribers have been out for long already:
-- a hang is known before it has ended.
--
-- KEYS[1]  prefix of the partition
-- ARGV     per subscriber: id, how long its oldest attempt has been out (ms)
-- Returns  1
--
-- Run twice, the second run finds it noted.
for i = 1, #ARGV, 2 do
  local s, out = subscriber(ARGV[i]), tonumber(ARGV[i + 1])
  if s and s.lat < out then
    s.lat = out
    touch(s)
  end
end
finish()
return 1
