package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/fanout/fanout/internal/access"
)

// Visitor is who looks at a page.
type Visitor struct {
	access.Identity

	// Token must be in every form that he sends.
	Token string
	// SignedIn says that he came by the login, and can sign out.
	SignedIn bool
}

// Label is how a page calls him; "" while there are no keys.
func (v Visitor) Label() string {
	if v.Identity == access.Local {
		return ""
	}
	return v.Name
}

// Visitor is who makes a request that was let in.
func (s *Site) Visitor(r *http.Request) Visitor {
	who := access.From(r.Context())
	token, signedIn := s.formToken(r, who)
	return Visitor{Identity: who, Token: token, SignedIn: signedIn}
}

// formToken is what a form must carry. It is bound to the session, so that every process
// knows it and no other session's fits; without one, to the key and this process. A page
// of another site can read neither.
func (s *Site) formToken(r *http.Request, who access.Identity) (token string, signedIn bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil || r.Header.Get("Authorization") != "" || who.KeyID == "" || who == access.Local {
		return macOf(s.secret, who.KeyID), false
	}
	return s.sessionToken(cookie.Value), true
}

// sessionToken is that of a session.
func (*Site) sessionToken(session string) string { return macOf([]byte(session), "form") }

func macOf(secret []byte, text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// ownForm says whether a form is one that this server gave to this visitor.
func (s *Site) ownForm(r *http.Request, v Visitor) bool {
	return hmac.Equal([]byte(r.PostFormValue("form_token")), []byte(v.Token))
}

func newSecret() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // it never fails: it would end the process
	return secret
}
