//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockDir claims a data folder, or returns ErrInUse. The lock lives as long as
// any process has the file open, and the server is given it too: one that was
// left behind by a killed process still keeps others out of its files.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "fanout-dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockFor)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the data folder: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(inUse(f), f.Close())
		case <-tick.C:
		}
	}
	// The number is for the message above only; without it that is vaguer.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return f, nil
}

func inUse(f *os.File) error {
	b := make([]byte, 16)
	n, _ := f.ReadAt(b, 0) // short by nature
	pid := strings.TrimSpace(string(b[:n]))
	if pid == "" {
		pid = "unknown"
	}
	return fmt.Errorf("%w by another `fanout dev` (process %s): stop that one, or use another folder", ErrInUse, pid)
}
