package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// board is one page of memory that the sink writes and the bench reads: to watch
// arrivals costs neither side a request.
type board struct {
	count atomic.Int64 // requests whose body was read
	bytes atomic.Int64 // of their bodies
	first atomic.Int64 // unix ns of the first since the last reset; 0 for none
	last  atomic.Int64 // of the last
}

const boardSize = 4096

// openBoard maps the file, which newBoard made.
func openBoard(path string) (*board, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the board: %w", err)
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	if err := f.Truncate(boardSize); err != nil {
		return nil, fmt.Errorf("size the board: %w", err)
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, boardSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the board: %w", err)
	}
	return (*board)(unsafe.Pointer(&m[0])), nil
}

// arrived is called by the sink alone.
func (b *board) arrived(n int64) {
	now := time.Now().UnixNano()
	b.bytes.Add(n)
	if b.first.Load() == 0 {
		b.first.CompareAndSwap(0, now)
	}
	b.last.Store(now)
	b.count.Add(1)
}

// reset is for the bench, between two measurements.
func (b *board) reset() {
	b.count.Store(0)
	b.bytes.Store(0)
	b.first.Store(0)
	b.last.Store(0)
}

// seconds from the first arrival to the last.
func (b *board) seconds() float64 { return float64(b.last.Load()-b.first.Load()) / 1e9 }
