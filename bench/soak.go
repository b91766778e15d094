package main

func soakMain([]string) error { return nil }
