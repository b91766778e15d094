package demo

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fanout/fanout/test/redistest"
)

var quiet = slog.New(slog.DiscardHandler)

func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	return redistest.Client(t, addr)
}

func TestRedisKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "data")
	o := RedisOptions{Dir: dir, Logger: quiet}
	addr, durable, stop, err := StartRedis(t.Context(), o)
	if err != nil || !durable {
		t.Fatalf("durable %t, %v", durable, err)
	}
	c := connect(t, addr)
	for key, want := range map[string]string{
		"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction", "bind": "127.0.0.1",
	} {
		if got := c.ConfigGet(t.Context(), key).Val()[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if err := c.Set(t.Context(), "k", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Ping(t.Context()).Err() == nil {
		t.Error("the stopped server answers")
	}

	addr, _, stop, err = StartRedis(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := connect(t, addr).Get(t.Context(), "k").Result(); got != "kept" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDataFolderInUse(t *testing.T) {
	t.Parallel()
	o := RedisOptions{Dir: t.TempDir(), Logger: quiet}
	s, err := startServer(t.Context(), "redis-server", o)
	if err != nil {
		t.Fatal(err)
	}
	second := func(why string) {
		t.Helper()
		_, _, _, err := StartRedis(t.Context(), o)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "stop that one") {
			t.Errorf("%s: got %v, want ErrInUse", why, err)
		}
	}
	second("another process runs")
	// The process is killed and its server lives on: the server holds the lock too.
	if err := s.lock.Close(); err != nil {
		t.Fatal(err)
	}
	second("a server was left behind")
	if err := s.stop(t.Context()); err != nil {
		t.Error(err)
	}
	_, _, stop, err := StartRedis(t.Context(), o)
	if err != nil {
		t.Fatalf("after the stop: %v", err)
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRedisDiesUnexpectedly(t *testing.T) {
	t.Parallel()
	var logged output
	s, err := startServer(t.Context(), "redis-server",
		RedisOptions{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	// Ctrl-C reaches all of a terminal's process group at once; the server must go
	// on until the service has settled.
	if group, err := syscall.Getpgid(s.cmd.Process.Pid); err != nil || group == syscall.Getpgrp() {
		t.Errorf("the server is in group %d, which is ours, %v", group, err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	if !strings.Contains(logged.String(), "ended by itself") {
		t.Errorf("logged %q", logged.String())
	}
	if err := s.stop(t.Context()); err == nil || !strings.Contains(err.Error(), "ended already") {
		t.Errorf("stop: %v", err)
	}
}

func TestRedisWithoutAServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := filepath.Join(t.TempDir(), "data")
	var logged bytes.Buffer
	addr, durable, stop, err := StartRedis(t.Context(), RedisOptions{Dir: dir, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil || durable {
		t.Fatalf("durable %t, %v", durable, err)
	}
	if s := logged.String(); !strings.Contains(s, "NOTHING IS DURABLE") || !strings.Contains(s, "apt-get install redis-server") {
		t.Errorf("logged %s", s)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder was made for nothing: %v", err)
	}
	c := connect(t, addr)
	if err := c.Set(t.Context(), "k", "v", 20*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return c.Exists(t.Context(), "k").Val() == 0 }) // by the clock alone
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// What keeps a server from starting is in the error: nobody looks for a log file.
func TestRedisThatCannotStart(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --logfile ] && echo 'Bad file format' >\"$2\"; shift; done\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "valkey-server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	dir := t.TempDir()
	for range 2 { // the lock is let go of
		_, _, _, err := StartRedis(t.Context(), RedisOptions{Dir: dir, Logger: quiet})
		if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "Bad file format") || !strings.Contains(err.Error(), "valkey-server") {
			t.Errorf("got %v", err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := StartRedis(t.Context(), RedisOptions{Dir: file, Logger: quiet}); err == nil {
		t.Error("a file was taken for a folder")
	}
}
