//go:build !unix

package cli

import "os"

// widthOf is how many characters fit on a line of a terminal; 0 if nobody knows.
func widthOf(*os.File) int { return 0 }
