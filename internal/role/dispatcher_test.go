package role

import (
	"testing"
	"time"
)

func TestWorkIsChecked(t *testing.T) {
	t.Parallel()
	good := Work{Slots: 100, Grace: time.Minute}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Work{{Slots: 0}, {Slots: -5}, {Slots: 1 << 30}, {Slots: 1, Grace: -time.Second}, {Slots: 1, Grace: time.Hour}} {
		if bad.Check() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
}
