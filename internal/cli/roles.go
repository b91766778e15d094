package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fanout/fanout/client"
)

// Who may do what, as the API has it.
var (
	anybody   = []client.Role{client.RoleProducer, client.RoleSubscriber, client.RoleViewer, client.RoleOperator, client.RoleAdmin}
	producers = []client.Role{client.RoleProducer, client.RoleAdmin}
	readers   = []client.Role{client.RoleSubscriber, client.RoleViewer, client.RoleOperator, client.RoleAdmin}
	owners    = []client.Role{client.RoleSubscriber, client.RoleAdmin}
	menders   = []client.Role{client.RoleSubscriber, client.RoleOperator, client.RoleAdmin}
	watchers  = []client.Role{client.RoleViewer, client.RoleOperator, client.RoleAdmin}
	operators = []client.Role{client.RoleOperator, client.RoleAdmin}
	admins    = []client.Role{client.RoleAdmin}
)

// need is what a command asks of a key: the roles that may make its scarcest call, and
// that call's name in the contract. A test holds the two to the contract.
type need struct {
	operation string
	roles     []client.Role
	// only says what part of the command it is about; "" is all of it.
	only string
}

var needs = map[string]need{
	"triage":                    {"getOnCall", watchers, ""},
	"status":                    {"getOnCall", watchers, ""},
	"subscribers ls":            {"listSubscribers", readers, ""},
	"subscribers show":          {"getSubscriber", readers, ""},
	"subscribers create":        {"createSubscriber", owners, ""},
	"subscribers patch":         {"patchSubscriber", owners, ""},
	"subscribers rm":            {"deleteSubscriber", owners, ""},
	"subscribers pause":         {"pauseSubscriber", menders, ""},
	"subscribers resume":        {"resumeSubscriber", menders, ""},
	"subscribers test":          {"testSubscriber", owners, ""},
	"subscribers rotate-secret": {"rotateSecret", owners, ""},
	"subscribers schedule":      {"previewSchedule", readers, ""},
	"subscribers stats":         {"getSubscriberStats", readers, ""},
	"events show":               {"getEvent", anybody, ""},
	"events post":               {"postEvent", producers, ""},
	"events batch":              {"postEventBatch", producers, ""},
	"trigger":                   {"postEvent", producers, ""},
	"deliveries ls":             {"listDeliveries", readers, "with --subscriber"},
	"deliveries show":           {"getDelivery", anybody, ""},
	"deliveries retry":          {"retryDelivery", menders, ""},
	"deliveries cancel":         {"cancelDelivery", menders, ""},
	"dead ls":                   {"listDeadLetters", readers, ""},
	"dead show":                 {"getDeadLetter", readers, ""},
	"dead discard":              {"discardDeadLetters", operators, ""},
	"redrive plan":              {"createRedrive", operators, ""},
	"redrive start":             {"createRedrive", operators, ""},
	"redrive ls":                {"listRedrives", watchers, ""},
	"redrive show":              {"getRedrive", watchers, ""},
	"redrive watch":             {"getRedrive", watchers, ""},
	"redrive approve":           {"approveRedrive", operators, ""},
	"redrive pause":             {"pauseRedrive", operators, ""},
	"redrive resume":            {"resumeRedrive", operators, ""},
	"redrive abort":             {"abortRedrive", operators, ""},
	"keys ls":                   {"listKeys", admins, ""},
	"keys create":               {"createKey", admins, ""},
	"keys revoke":               {"revokeKey", admins, ""},
	"keys self":                 {"getSelf", anybody, ""},
	"audit":                     {"listAudit", watchers, ""},
	"explain":                   {"getDelivery", anybody, ""},
	"tail":                      {"listDeadLetters", readers, ""},
	"listen":                    {"createSubscriber", owners, "with --register"},
}

// roleHelp says in a command's help which keys it is for.
func roleHelp(command string) string {
	n, ok := needs[command]
	if !ok {
		return ""
	}
	if len(n.roles) == len(anybody) {
		return "A server that has keys takes a key of any role for this."
	}
	line := "A server that has keys wants for this a key of role " + either(n.roles) + "."
	if n.only != "" {
		line = strings.ToUpper(n.only[:1]) + n.only[1:] + ", a server that has keys wants a key of role " + either(n.roles) + "."
	}
	return line
}

func either(roles []client.Role) string {
	var names []string
	for _, r := range roles {
		names = append(names, string(r))
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}

// role asks what the key is, for a hint; "" if that cannot be found out, which must
// spoil nothing.
func (s *session) role(ctx context.Context) client.Role {
	who, err := ask(ctx, s, func(ctx context.Context, c *client.Client) (client.Identity, error) { return c.Self(ctx) })
	if err != nil {
		return ""
	}
	return who.Role
}

// may says whether a role may run a command. One that is not known is given the hint.
func may(r client.Role, command string) bool {
	n, ok := needs[command]
	return r == "" || !ok || slices.Contains(n.roles, r)
}

// withRole is a command and, for those who may not run it, whose it is.
func withRole(r client.Role, command, line string) string {
	if may(r, command) {
		return line
	}
	return fmt.Sprintf("%s, with a key of role %s", line, either(needs[command].roles))
}
