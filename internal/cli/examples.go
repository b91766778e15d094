package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shownExamples are what each command's --help shows; a test parses each of them.
var shownExamples = map[string]string{
	"triage": `fanout triage
fanout triage -o json | jq -r .triage.diagnosis`,
	"status": `fanout status
fanout status -o json | jq .fleet.groups`,
	"subscribers ls": `fanout subscribers ls
fanout subscribers ls --account=acme --all -o json | jq -r '.data[].url'`,
	"subscribers show": `fanout subscribers show sub_01K8Z5`,
	"subscribers create": `fanout subscribers create --url=https://example.com/hook --types='shipment.*'
fanout subscribers create --url=https://example.com/hook --types=shipment.delivered --attribute='carrier=dhl|ups' --policy=max_attempts=5,attempt_timeout=5s
umask 077 # so that nobody else can read what is written
echo '{"url": "https://example.com/hook", "headers": {"X-Shop": "7"}}' | fanout subscribers create --file=- -o json | jq -r .secret > secret.txt`,
	"subscribers patch": `fanout subscribers patch sub_01K8Z5 --url=https://example.com/new
fanout subscribers patch sub_01K8Z5 --policy=max_in_flight=4 --classify=404=retry --reason='a slow week'`,
	"subscribers rm": `fanout subscribers rm sub_01K8Z5
fanout subscribers rm sub_01K8Z5 --yes --reason='the shop has closed'`,
	"subscribers pause":  `fanout subscribers pause sub_01K8Z5 --reason='maintenance until noon'`,
	"subscribers resume": `fanout subscribers resume sub_01K8Z5`,
	"subscribers test": `fanout subscribers test sub_01K8Z5
echo '{"hello": "world"}' | fanout subscribers test sub_01K8Z5 --data=-`,
	"subscribers rotate-secret": `fanout subscribers rotate-secret sub_01K8Z5
fanout subscribers rotate-secret sub_01K8Z5 --overlap=0s --reason='the old one leaked'`,
	"subscribers schedule": `fanout subscribers schedule sub_01K8Z5
fanout subscribers schedule sub_01K8Z5 --attempts=5`,
	"subscribers stats": `fanout subscribers stats sub_01K8Z5 -o json`,
	"events show":       `fanout events show evt_01K8Z5`,
	"events post": `fanout events post --type=shipment.delivered --shipment=shp_1 --attribute=carrier=dhl --fail-if-none
head -1 examples/shipments.ndjson | fanout events post --file=-
echo '{"signed_by": "reception"}' | fanout events post --id=evt_1 --occurred-at=2026-03-01T09:30:00Z --type=shipment.delivered --shipment=shp_1 --data=-`,
	"events batch": `fanout events batch examples/shipments.ndjson
cat examples/shipments.ndjson | fanout events batch -o json | jq -c '.results[] | select(.problem)'`,
	"deliveries ls": `fanout deliveries ls --event=evt_01K8Z5
fanout deliveries ls --subscriber=sub_01K8Z5 --state=scheduled --limit=20`,
	"deliveries show":   `fanout deliveries show dlv_0a1b`,
	"deliveries retry":  `fanout deliveries retry dlv_0a1b --reason='the endpoint is back'`,
	"deliveries cancel": `fanout deliveries cancel dlv_0a1b --reason='it was a test'`,
	"dead ls": `fanout dead ls --limit=20
fanout dead ls --subscriber=sub_01K8Z5 -o json | jq -r '.data[].reason' | sort | uniq -c`,
	"dead show": `fanout dead show dlv_0a1b
fanout dead show dlv_0a1b -o json | jq -r .payload.content`,
	"dead discard": `fanout dead discard dlv_0a1b dlv_0a1c --reason='orders of a test'`,
	"redrive plan": `fanout redrive plan --subscriber=sub_01K8Z5 --since=6h
fanout redrive plan --class=standard --died-of=exhausted --max-rate=20`,
	"redrive start": `fanout redrive start --subscriber=sub_01K8Z5 --since=6h --reason='the endpoint was down until noon'
fanout redrive start dlv_0a1b dlv_0a1c --budget=3 --reason='ticket 4711'`,
	"redrive ls":      `fanout redrive ls --limit=10`,
	"redrive show":    `fanout redrive show rdv_01K8Z5`,
	"redrive approve": `fanout redrive approve rdv_01K8Z5 --effect='order 4711 shows as shipped once, no second mail'`,
	"redrive pause":   `fanout redrive pause rdv_01K8Z5 --reason='the receiver asks for a break'`,
	"redrive resume":  `fanout redrive resume rdv_01K8Z5 --reason='the receiver is fine again'`,
	"redrive abort":   `fanout redrive abort rdv_01K8Z5 --yes --reason='the receiver has the orders by other means'`,
	"redrive watch": `fanout redrive watch rdv_01K8Z5
fanout redrive watch rdv_01K8Z5 --exit-on-pause -o json | jq -r .redrive.state`,
	"keys ls": `fanout keys ls`,
	"keys create": `fanout keys create --name='order service' --role=producer
umask 077 # so that nobody else can read what is written
fanout keys create --name=acme --role=subscriber --account=acme --expires=720h -o json | jq -r .key > key.txt`,
	"keys revoke": `fanout keys revoke key_01K8Z5
fanout keys revoke key_01K8Z5 --yes --reason='it was in a log'`,
	"keys self": `fanout keys self
fanout keys self --key-file=key.txt`,
	"audit": `fanout audit --limit=20
fanout audit --target=sub_01K8Z5 -o json`,
	"explain": `fanout explain dlv_0a1b
fanout explain dlv_0a1b -o json | jq -r '.explanation[]'`,
	"tail": `fanout tail sub_01K8Z5
fanout tail sub_01K8Z5 -o json | jq -r 'select(.state == "dead") | .id'`,
	"trigger": `fanout trigger shipment.delivered
fanout trigger shipment.delivered --id=evt_1 --occurred-at=2026-03-01T09:30:00Z
fanout trigger shipment.created --attribute=carrier=dhl,country=DE --count=100 --rate=10`,
	"listen": `fanout listen --register='shipment.*'
fanout listen --register=shipment.delivered --fail=30% --slow=2s
fanout listen --addr=127.0.0.1:8089 --secret-file=secret.txt --status=503 --retry-after=10s`,
}

// sampleIDs are the ids in the examples, which nobody has.
var sampleIDs = regexp.MustCompile(`\b(?:sub|evt|rdv|key)_01K8Z5\b|\bdlv_0a1[bc]\b`)

// helpOf is what a command's help adds to its flags; its path begins with the
// program's name.
func helpOf(path string) string {
	command := strings.TrimPrefix(path, "fanout ")
	text, ok := shownExamples[command]
	if !ok {
		return ""
	}
	said := []string{"Examples:", "  " + strings.ReplaceAll(text, "\n", "\n  ")}
	var told []string
	for _, id := range sampleIDs.FindAllString(text, -1) {
		if k, known := kindOf(id); known && !slices.Contains(told, k.prefix) {
			told = append(told, k.prefix)
			said = append(said, fmt.Sprintf("%s stands for the id of %s of yours: %s.", id, k.a, k.finds))
		}
	}
	return strings.Join(append(said, roleHelp(command), exitCodes), "\n\n")
}

// exitCodes are those of all commands.
const exitCodes = "Exit codes: 0 done, 1 failed, 2 not understood, 3 the service is away or unwell."
