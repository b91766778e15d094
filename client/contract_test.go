package client

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The client's types have the fields of the contract, all of them and no others.
func TestTypesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, v := range map[string]any{
		"EventReceipt": Receipt{}, "Event": StoredEvent{}, "DeliverySummary": DeliverySummary{},
		"Delivery": Delivery{}, "Attempt": Attempt{}, "DeadLetter": DeadLetter{},
		"DeadLetterList": List[DeadLetter]{}, "SubscriberList": List[Subscriber]{},
		"FilterInput": Filter{}, "PolicyInput": PolicyInput{}, "Policy": Policy{}, "SubscriberInput": SubscriberInput{},
		"Subscriber": Subscriber{}, "SubscriberStatus": SubscriberStatus{}, "Hold": Hold{}, "Waiting": Waiting{},
		"SubscriberDeleted": DeletedSubscriber{},
		"BatchResult":       BatchItem{}, "DeliveryList": List[Delivery]{},
		"SecretInfo": SecretInfo{}, "SecretRotation": Rotation{}, "SecretRotated": RotatedSecret{},
		"TestInput": TestEvent{}, "TestReceipt": TestReceipt{},
		"SchedulePreview": Schedule{}, "ScheduledAttempt": ScheduledAttempt{}, "ScheduleEnd": ScheduleEnd{}, "SubscriberStats": SubscriberStats{},
		"NewKey": NewKey{}, "Key": Key{}, "KeyList": List[Key]{}, "Self": Identity{}, "Actor": Identity{},
		"AuditEntry": AuditEntry{}, "AuditList": List[AuditEntry]{},
		"OnCall": OnCall{}, "OnCallClass": OnCallClass{}, "OnCallLane": OnCallLane{}, "Ledger": Ledger{},
		"Triage": Triage{}, "TriageAnswer": TriageAnswer{}, "TriageEvidence": TriageEvidence{}, "Fleet": Fleet{}, "FleetGroup": FleetGroup{},
		"FleetUse": FleetUse{}, "SlotLimits": SlotLimits{}, "RecentAttempts": RecentAttempts{}, "FailingSubscriber": FailingSubscriber{},
		"Release": Release{}, "OnCallRedis": OnCallRedis{}, "Gap": Gap{}, "OnCallRedrive": OnCallRedrive{},
		"OnCallHeld": OnCallHeld{}, "OnCallFailure": OnCallFailure{},
		"Phases": Phases{}, "Terms": Terms{},
		"DeadLetterEvidence": DeadLetterEvidence{}, "SentPayload": Payload{}, "SentEvent": SentEvent{}, "DeadLetterFilter": DeadLetterFilter{},
		"DiscardResults": Discarded{}, "DiscardResult": DiscardResult{},
		"RedriveInput": RedriveOrder{}, "Redrive": Redrive{}, "RedriveTally": RedriveTally{}, "RedriveList": List[Redrive]{},
		"RedrivePreview": RedrivePreview{}, "RedriveShare": RedriveShare{}, "RedriveCause": RedriveCause{}, "HeadRoom": HeadRoom{},
		"Problem": Problem{}, "FieldProblem": FieldProblem{},
	} {
		want := slices.Sorted(maps.Keys(doc.Components.Schemas[schema].Properties))
		if got := fields(reflect.TypeOf(v)); !slices.Equal(got, want) {
			t.Errorf("%s is\n%v, in the contract\n%v", schema, got, want)
		}
	}
}

func fields(typ reflect.Type) (names []string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
