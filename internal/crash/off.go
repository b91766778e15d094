//go:build !crashpoints

package crash

// Point does nothing.
func Point(string) {}
