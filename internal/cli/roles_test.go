package cli

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fanout/fanout/client"
)

// What the help says about roles is what the contract says.
func TestRolesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	operation := ""
	for _, m := range regexp.MustCompile(`(?m)^ {6}(operationId|x-roles): (.*)$`).FindAllStringSubmatch(string(text), -1) {
		if m[1] == "operationId" {
			operation = m[2]
		} else {
			has[operation] = strings.Trim(m[2], "[]")
		}
	}
	for _, leaf := range leaves(t) {
		name := strings.TrimPrefix(leaf.FullPath(), "fanout ")
		n, ok := needs[name]
		if !ok || !strings.Contains(helpOf(leaf.FullPath()), roleHelp(name)) {
			t.Errorf("%s does not say which role it needs", name)
		}
		var roles []string
		for _, r := range n.roles {
			roles = append(roles, string(r))
		}
		if got := strings.Join(roles, ", "); n.only != "with --subscriber" && got != has[n.operation] {
			t.Errorf("%s: %s, and the contract has %q of %s", name, got, has[n.operation], n.operation)
		}
	}
	if help := helpOf("fanout listen"); !strings.Contains(help, "With --register, a server that has keys wants a key of role subscriber or admin.") {
		t.Error(help)
	}
}

// A producer is told what its key cannot see, and is sent nowhere where it is refused.
func TestExplainToAProducer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	made := s.subscriber(http.StatusOK, "--types=shipment.*", "--paused")
	var key client.CreatedKey
	s.read(&key, "keys", "create", "--name=orders", "--role=producer")
	p := &service{t: t, api: s.api, key: file(t, key.Token)}
	until(t, "the key counts", func() bool { return run(t, "", p.args("keys", "self")...).code == exitOK })
	var r client.Receipt
	p.read(&r, "trigger", "shipment.created")
	var all struct{ Data []client.Delivery }
	until(t, "it waits", func() bool {
		p.read(&all, "deliveries", "ls", "--event="+r.ID)
		return len(all.Data) == 1
	})
	id := all.Data[0].ID
	said := p.ok("explain", id)
	for _, want := range []string{"Whether its subscriber is on hold cannot be seen with your key", "- With a key of role subscriber, operator or admin: fanout deliveries retry " + id, "- See the event"} {
		if !strings.Contains(said.out, want) {
			t.Errorf("it does not say %q:\n%s", want, said.out)
		}
	}
	if strings.Contains(said.out, "Make it due now") || strings.Contains(said.out, "ago: it goes as soon") {
		t.Error(said.out)
	}
	if said := s.ok("explain", id); !strings.Contains(said.out, "but for the hold") || !strings.Contains(said.out, "fanout subscribers resume "+made.ID) {
		t.Error(said.out)
	}
	none := p.ok("trigger", "other.thing")
	if !strings.Contains(none.err, "fanout subscribers ls shows what they get, with a key of role subscriber, viewer, operator or admin.") {
		t.Error(none.err)
	}
}
