//go:build crash

package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// powerCut takes away what a killed Redis wrote in its last second. A kill alone
// loses nothing that a client was told, whatever appendfsync says: it was written
// to the file, and the kernel keeps that. A power cut takes what was not synced:
// under everysec, about a second. The file is marked with the time for it.
func powerCut(dir string, at time.Time) error {
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("append-only files %v, %w", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		return fmt.Errorf("power cut: %w", err)
	}
	mark := []byte("#TS:")
	for from := 0; ; {
		i := bytes.Index(b[from:], mark)
		if i < 0 {
			return nil // nothing was written in the last second
		}
		i += from
		from = i + len(mark)
		end := bytes.IndexByte(b[from:], '\r')
		if end < 0 {
			return nil
		}
		second, err := strconv.ParseInt(string(b[from:from+end]), 10, 64)
		if err == nil && second >= at.Unix()-1 {
			if err := os.Truncate(files[0], int64(i)); err != nil {
				return fmt.Errorf("power cut: %w", err)
			}
			return nil
		}
	}
}
