package schedule

// PartitionPrefix is the key prefix of a partition, for tests that look where it
// lies.
func PartitionPrefix(e *Engine, p int) string { return e.parts[p] }

// EventPrefix is that of the event partition of an event.
func EventPrefix(e *Engine, id string) string { return e.eventPrefix(id) }

// Recoded is a cursor of a list, read and written again.
func Recoded(list, cursor string) (string, error) {
	p, err := parsePlace(list, cursor)
	return p.cursor(list), err
}
