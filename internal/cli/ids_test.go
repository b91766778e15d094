package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Whatever id is given to whatever command, it is told what it is and where it goes.
func TestEveryCommandKnowsTheOtherIDs(t *testing.T) {
	t.Parallel()
	none := answering(t, 404, "application/problem+json", `{"status":404,"code":"not_found","detail":"There is none."}`)
	for _, leaf := range leaves(t) {
		command := strings.Fields(strings.TrimPrefix(leaf.FullPath(), "fanout "))
		for _, p := range leaf.Positional {
			want, takes := map[string]idKind{"delivery": aDeliveryID, "subscriber": aSubscriberID, "redrive": aRedriveID, "key": aKeyID}[p.Name]
			if !takes {
				if p.Name != "event" && p.Name != "file" && p.Name != "type" {
					t.Errorf("%s takes a <%s>: is it an id?", leaf.FullPath(), p.Name)
				}
				continue
			}
			for _, k := range idKinds {
				args := append(append([]string{}, command...), k.prefix+"01K8Z5", "--reason=r", "--api="+none)
				args = append(args, required(leaf)...)
				r := run(t, "", args...)
				if k == want {
					if r.code == exitUsage && !strings.Contains(r.err, "say what to change") {
						t.Errorf("%v: %+v", args, r)
					}
					continue
				}
				if r.code != exitUsage || !strings.Contains(r.err, "is the id of "+k.a+", and here goes that of "+want.a) || !strings.Contains(r.err, k.prefix+"01K8Z5 ") {
					t.Errorf("%v: %+v", args, r)
				}
			}
		}
	}
}

// required are the flags that a command cannot do without.
func required(leaf *kong.Node) (flags []string) {
	for _, f := range leaf.Flags {
		if f.Required {
			flags = append(flags, "--"+f.Name+"=x")
		}
	}
	return flags
}

func TestIDsOfNoKind(t *testing.T) {
	t.Parallel()
	const token = "fok_01KJN5J6G0ABCDEFGHJKMNPQRS_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, c := range []struct{ args, says string }{
		{"explain order-4711", `"order-4711" is no id of a delivery: those begin with dlv_; fanout deliveries ls --event=ID`},
		{"subscribers show acme", "fanout subscribers ls lists them"},
		{"redrive start dlv_1 evt_2 --reason=r", "fanout events show evt_2"},
		{"dead discard dlv_1 sub_2 --reason=r", "fanout subscribers show sub_2"},
		{"dead ls --subscriber=evt_2", "fanout events show evt_2"},
		{"deliveries ls --subscriber=dlv_2", "fanout explain dlv_2"},
		{"keys revoke " + token, "that is a key itself"},
	} {
		r := run(t, "", append(strings.Fields(c.args), "--api=http://127.0.0.1:1")...)
		if r.code != exitUsage || !strings.Contains(r.err, c.says) || strings.Contains(r.err, token) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	const gone = `{"type":"urn:x","title":"T","status":404,"code":"not_found","detail":"There is none.","request_id":"req_1"}`
	api := answering(t, 404, "application/problem+json", gone)
	for _, c := range []struct{ args, says string }{
		{"events show dlv_1", "dlv_1 looks like the id of a delivery: fanout explain dlv_1"},
		{"deliveries ls --event=sub_1", "sub_1 looks like the id of a subscriber: fanout subscribers show sub_1"},
		{"explain dlv_1", "dlv_1 cannot be a whole id: a delivery's has 28 characters"},
		{"deliveries retry dlv_1", "cannot be a whole id"},
		{"deliveries cancel dlv_1 --reason=r", "cannot be a whole id"},
		{"dead show " + sampleDelivery, "If it is not dead, or has been redriven or discarded: fanout explain " + sampleDelivery},
	} {
		r := run(t, "", append(strings.Fields(c.args), "--api="+api)...)
		if r.code != exitFailed || !strings.HasPrefix(r.err, "fanout: There is none.") || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
}
