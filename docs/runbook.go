// Package docs answers: what does a process show of its own documents?
//
// The runbook travels in the binary, so that the on-call page leads to the text of its own
// version.
package docs

import _ "embed" // for the line below

// Runbook is runbook.md.
//
//go:embed runbook.md
var Runbook string
