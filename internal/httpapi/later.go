package httpapi

import "net/http"

// What the contract has and this server does not serve yet.

func (s *server) notServed(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, fail(ProblemCodeNotFound, "This server does not serve it."))
}

func (s *server) GetDocs(w http.ResponseWriter, r *http.Request) { s.notServed(w, r) }

func (s *server) ListAudit(w http.ResponseWriter, r *http.Request, _ ListAuditParams) {
	s.notServed(w, r)
}

func (s *server) ListDeliveries(w http.ResponseWriter, r *http.Request, _ ListDeliveriesParams) {
	s.notServed(w, r)
}

func (s *server) CancelDelivery(w http.ResponseWriter, r *http.Request, _ DeliveryID, _ CancelDeliveryParams) {
	s.notServed(w, r)
}

func (s *server) RetryDelivery(w http.ResponseWriter, r *http.Request, _ DeliveryID, _ RetryDeliveryParams) {
	s.notServed(w, r)
}

func (s *server) PostEventBatch(w http.ResponseWriter, r *http.Request) { s.notServed(w, r) }

func (s *server) ListKeys(w http.ResponseWriter, r *http.Request, _ ListKeysParams) {
	s.notServed(w, r)
}

func (s *server) CreateKey(w http.ResponseWriter, r *http.Request, _ CreateKeyParams) {
	s.notServed(w, r)
}

func (s *server) GetSelf(w http.ResponseWriter, r *http.Request) { s.notServed(w, r) }

func (s *server) RevokeKey(w http.ResponseWriter, r *http.Request, _ KeyID, _ RevokeKeyParams) {
	s.notServed(w, r)
}

func (s *server) GetKey(w http.ResponseWriter, r *http.Request, _ KeyID) { s.notServed(w, r) }

func (s *server) PreviewSchedule(w http.ResponseWriter, r *http.Request, _ SubscriberID, _ PreviewScheduleParams) {
	s.notServed(w, r)
}

func (s *server) RotateSecret(w http.ResponseWriter, r *http.Request, _ SubscriberID, _ RotateSecretParams) {
	s.notServed(w, r)
}

func (s *server) GetSubscriberStats(w http.ResponseWriter, r *http.Request, _ SubscriberID) {
	s.notServed(w, r)
}

func (s *server) TestSubscriber(w http.ResponseWriter, r *http.Request, _ SubscriberID, _ TestSubscriberParams) {
	s.notServed(w, r)
}
