package cassandra

// rivalEnv makes the test binary a process that takes a stream from another one.
const rivalEnv = "HOLDFAST_CASSANDRA_RIVAL"

func rival() int { return 2 }
