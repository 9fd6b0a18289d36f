#!/bin/sh
exec java -XX:TieredStopAtLevel=1 -Xmx256m -cp '/opt/kafka/libs/*' org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
