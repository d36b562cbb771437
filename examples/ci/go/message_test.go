package main

import "testing"

func TestMessage(t *testing.T) {
	names, err := run()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Error("a program that transfers has a device")
	}
}
