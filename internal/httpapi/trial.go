package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fanout/fanout/internal/delivery"
	"github.com/fanout/fanout/internal/ingest"
	"github.com/fanout/fanout/internal/subscriber"
)

// What a test event is, unless the test says otherwise.
const (
	testType     = "fanout.test"
	testShipment = "test"
	testData     = `{"message":"This is a test. Answer 2xx and change nothing."}`
)

// What to do after a rotation or a test whose fate is not known.
const (
	repeatRotation = "The secret may have been made, and nobody has it. Rotate again: the older secrets go on signing for their overlap, " +
		"so nothing is lost. A call that names the secret can be repeated as it is."
	repeatTest = "The test event may be on its way. Send the same request again if none arrives: it makes another one."
)

// TestSubscriber sends an event to one subscriber, on the normal road.
func (s *server) TestSubscriber(w http.ResponseWriter, r *http.Request, id SubscriberID, _ TestSubscriberParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in TestInput
		if err := decodeOptional(r, &in); err != nil {
			return err
		}
		p := ingest.Post{Type: testType, ShipmentID: testShipment, OccurredAt: time.Now().UTC().Format(time.RFC3339), Data: json.RawMessage(testData)}
		if in.Type != nil {
			p.Type = *in.Type
		}
		if in.Data != nil {
			p.Data = in.Data
		}
		sub, err := s.ownSubscriber(r.Context(), id)
		if err != nil {
			return err
		}
		noteOf(r).repeat = repeatTest
		receipt, err := s.deps.Ingest.SubmitTo(r.Context(), p, &sub)
		if err != nil {
			return fmt.Errorf("test subscriber: %w", err)
		}
		out := TestReceipt{EventID: receipt.ID, DeliveryID: delivery.NewID(receipt.ID, sub.ID)}
		noteOf(r).id("event_id", out.EventID)
		s.record(r, change{target: sub.ID, account: sub.Account, after: facts{"event_id": out.EventID, "delivery_id": out.DeliveryID, "type": p.Type}})
		w.Header().Set("Location", "/v1/events/"+url.PathEscape(out.EventID))
		return writeJSON(w, http.StatusAccepted, out)
	})
}

// RotateSecret gives a subscriber a new secret and shows it for the only time.
func (s *server) RotateSecret(w http.ResponseWriter, r *http.Request, id SubscriberID, _ RotateSecretParams) {
	s.run(w, r, workTimeout, func(w http.ResponseWriter, r *http.Request) error {
		var in SecretRotation
		asked := func() subscriber.Rotation {
			rotation := subscriber.Rotation{Secret: in.Secret, Overlap: subscriber.DefaultOverlap}
			if in.Overlap != nil {
				rotation.Overlap = time.Duration(*in.Overlap)
			}
			return rotation
		}
		if err := decode(r, &in, func() error { return asked().Check() }); err != nil {
			return err
		}
		was, err := s.ownSubscriber(r.Context(), id)
		if err != nil {
			return err
		}
		noteOf(r).repeat = repeatRotation
		sub, err := s.deps.Subscribers.RotateSecret(r.Context(), id, asked())
		if errors.Is(err, subscriber.ErrTooManySecrets) {
			return &failure{
				code: ProblemCodeTooManySecrets, cause: err,
				detail: fmt.Sprintf("%d secrets sign already, and each signs every request. Wait until one expires, "+
					`or send "overlap": "0s" to end the others at once.`, subscriber.MaxSecrets),
			}
		}
		if err != nil {
			return subscriberError(err)
		}
		s.recordSubscriber(r, was, sub)
		return writeJSON(w, http.StatusCreated, SecretRotated{Secret: sub.Secrets[0].Value, Secrets: secretViews(sub.Secrets)})
	})
}

// secretViews tell of the secrets that sign, and not what they are.
func secretViews(secrets []subscriber.Secret) []SecretInfo {
	now := time.Now()
	out := make([]SecretInfo, 0, len(secrets))
	for _, secret := range secrets {
		if secret.Active(now) {
			key, _ := secret.Public() // one that cannot be read has none to show
			out = append(out, SecretInfo{ID: secret.ID, CreatedAt: secret.CreatedAt.UTC(), ExpiresAt: utc(secret.ExpiresAt), PublicKey: key})
		}
	}
	return out
}
