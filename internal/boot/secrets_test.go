package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretsAreReadFromOneOfTwo(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, c := range map[string]struct {
		s    Secrets
		want string
		err  string
	}{
		"neither":    {Secrets{}, "", ""},
		"the key":    {Secrets{Key: "k1:hunter2"}, "k1:hunter2", ""},
		"a file":     {Secrets{KeyFile: file("k1:hunter2\n")}, "k1:hunter2\n", ""},
		"both":       {Secrets{Key: "k1:hunter2", KeyFile: file("x")}, "", "both key and key-file"},
		"no file":    {Secrets{KeyFile: "/does/not/exist"}, "", "read keys"},
		"empty file": {Secrets{KeyFile: file("")}, "", "is empty"},
	} {
		got, err := c.s.Read()
		if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}
