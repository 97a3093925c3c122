package hbase

const racerEnv = "HOLDFAST_HBASE_RACER"

func racer() int { return 1 }
