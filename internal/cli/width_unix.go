//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// widthOf is how many characters fit on a line of a terminal; 0 if nobody knows.
func widthOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
