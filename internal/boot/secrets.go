package boot

import (
	"errors"
	"fmt"
	"os"
)

// Secrets says by which keys the secrets of subscribers are sealed in Redis.
type Secrets struct {
	Key     string `env:"FANOUT_SECRETS_KEY" help:"Keys that seal subscribers' secrets in Redis, id:base64 of 32 bytes, the first for what is written; given by the variable, in --config or by --secrets-key-file, and refused on the command line, which other users see." secret:"true" placeholder:"ID:KEY,..."`
	KeyFile string `env:"FANOUT_SECRETS_KEY_FILE" help:"File that holds the keys, by commas or one a line." placeholder:"FILE"`

	// InTheClear says that there is nothing to warn of: the demo's secrets are none.
	InTheClear bool `kong:"-"`
}

// Read gives the keys as text, "" if there are none. Its errors show no key.
func (s Secrets) Read() (string, error) {
	if s.KeyFile == "" {
		return s.Key, nil
	}
	if s.Key != "" {
		return "", errors.New("secrets: both key and key-file are set")
	}
	b, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return "", fmt.Errorf("secrets: read keys: %w", err)
	}
	if len(b) == 0 { // an empty file is no wish to store secrets in the clear
		return "", fmt.Errorf("secrets: %s is empty", s.KeyFile)
	}
	return string(b), nil
}
