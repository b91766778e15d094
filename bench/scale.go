package main

func scaleMain([]string) error { return nil }
