package schedule_test

import "github.com/fanout/fanout/test/audit"

// audit checks, from the raw keys and independently of the scripts, what must hold
// at every instant; package audit says what that is.
func (w *world) audit() {
	w.Helper()
	faults, err := audit.Check(w.ctx, w.rdb)
	w.ok(err)
	for _, f := range faults {
		w.Errorf("audit: %s", f)
	}
	if w.Failed() {
		w.FailNow()
	}
}
