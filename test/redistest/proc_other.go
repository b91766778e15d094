//go:build !linux

package redistest

import "syscall"

// dieWithParent: only Linux can be asked; elsewhere a killed test binary leaves
// its server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
