module example.org/message

go 1.19
