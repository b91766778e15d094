package cli

import (
	"os"
	"testing"
)

// The settings of whoever runs the tests are not theirs.
func TestMain(m *testing.M) {
	for _, name := range []string{"FANOUT_API", keyVariable, secretVariable} {
		_ = os.Unsetenv(name)
	}
	m.Run()
}
