module wirescan/peers/thrift

go 1.26

require (
	github.com/apache/thrift v0.25.0
	github.com/facebook/fbthrift v0.31.1-0.20211129061412-801ed7f9f295
	github.com/klauspost/compress v1.18.0
)
