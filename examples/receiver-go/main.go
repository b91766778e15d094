// Command receiver-go is a receiver of fanout's webhooks, as one may write it in
// Go: verify, store once, answer, and let no late event overwrite a newer one.
package main

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	_ "modernc.org/sqlite"
)

// maxBody is above the longest body that fanout sends: 256 KiB of data, and the
// event's other fields.
const maxBody = 1 << 20

// schema: the primary key on webhook_id is what makes twice once, also after a crash.
const schema = `
CREATE TABLE IF NOT EXISTS deliveries (webhook_id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS shipments (shipment_id TEXT PRIMARY KEY, status TEXT NOT NULL, occurred_at INTEGER NOT NULL);`

type receiver struct {
	verifier
	db *sql.DB
}

// open makes a receiver whose commits are on disk before it answers.
func open(secret, file string) (*receiver, error) {
	verify, err := newVerifier(secret)
	if err != nil { // which is not told: what is malformed may be a secret all the same
		return nil, errors.New("WEBHOOK_SECRET must be the subscriber's secret, whsec_..., or the public key of a whsk_ one, whpk_...")
	}
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(schema)
	return &receiver{verify, db}, err
}

// event is what a receiver needs of the body; it may grow fields at any time.
type event struct {
	Type       string    `json:"type"`
	Timestamp  time.Time `json:"timestamp"` // when it happened, not when it was sent
	ShipmentID string    `json:"shipment_id"`
}

func (rc *receiver) hook(w http.ResponseWriter, r *http.Request) {
	// The raw body: any parsing and writing anew would change what was signed.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		return // the sender went away
	}
	// Checks the signature, and that the timestamp is within five minutes. 401 is a
	// refusal that speaks of us: if our secret is wrong, fanout's breaker opens and most
	// deliveries wait; with the policy's "classify": {"401": "retry"} none is dead of it
	// at once. After a 400 each of them would be.
	if err := rc.Verify(body, r.Header); err != nil {
		http.Error(w, "not verified", http.StatusUnauthorized)
		return
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, "not an event", http.StatusBadRequest) // nor will it be the next time
		return
	}
	if err := rc.store(r, e, body); err != nil {
		log.Printf("cannot store %s: %v", r.Header.Get("webhook-id"), err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent) // the work begins now, from the table
}

// store keeps a delivery once, and moves its shipment on unless what is known of it
// is newer. Both or neither.
func (rc *receiver) store(r *http.Request, e event, body []byte) error {
	tx, err := rc.db.BeginTx(r.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	result, err := tx.Exec(`INSERT INTO deliveries VALUES (?, ?) ON CONFLICT DO NOTHING`, r.Header.Get("webhook-id"), body)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err // a duplicate: stored already, so it is answered the same
	}
	if e.Type == "fanout.test" {
		return tx.Commit() // of no shipment
	}
	if _, err := tx.Exec(`INSERT INTO shipments VALUES (?, ?, ?) ON CONFLICT DO UPDATE
		SET status = excluded.status, occurred_at = excluded.occurred_at WHERE excluded.occurred_at > occurred_at`,
		e.ShipmentID, e.Type, e.Timestamp.UnixMicro()); err != nil {
		return err
	}
	return tx.Commit()
}

// shipments shows what is stored.
func (rc *receiver) shipments(w http.ResponseWriter, r *http.Request) {
	out := struct {
		Deliveries int               `json:"deliveries"`
		Shipments  map[string]string `json:"shipments"`
	}{Shipments: map[string]string{}}
	err := rc.db.QueryRow(`SELECT count(*) FROM deliveries`).Scan(&out.Deliveries)
	rows, err2 := rc.db.Query(`SELECT shipment_id, status FROM shipments`)
	if err := cmp.Or(err, err2); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id, status string
		if err := rows.Scan(&id, &status); err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		out.Shipments[id] = status
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (rc *receiver) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", rc.hook)
	mux.HandleFunc("GET /shipments", rc.shipments)
	return mux
}

func main() {
	rc, err := open(os.Getenv("WEBHOOK_SECRET"), cmp.Or(os.Getenv("DATA"), "receiver.db"))
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8091"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/hook\n", ln.Addr())
	srv := &http.Server{Handler: rc.routes(), ReadTimeout: 10 * time.Second}
	log.Fatal(srv.Serve(ln))
}
