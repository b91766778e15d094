//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// lockDir claims nothing: this system has no lock that ends with its process.
func lockDir(_ context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "fanout-dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	return f, nil
}
