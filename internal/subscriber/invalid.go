package subscriber

import (
	"errors"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/fault"
)

// judged is what a *fault.Invalid of this package is about.
const judged = "subscriber"

// addAll files joined FieldErrors under a parent: "max_attempts" becomes
// "/policy/max_attempts". An error of another kind is about the parent itself.
func addAll(bad *fault.List, parent string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			addAll(bad, parent, e)
		}
		return
	}
	if field, ok := errors.AsType[delivery.FieldError](err); ok {
		bad.Addf(parent+"/"+field.Field, "%s", field.Detail)
		return
	}
	bad.Addf(parent, "%s", err)
}
