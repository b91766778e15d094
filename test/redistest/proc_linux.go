package redistest

import "syscall"

// dieWithParent has the kernel end the child when the test binary dies without
// its cleanups: a panic, a test timeout, kill -9.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
