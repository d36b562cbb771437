/interface ethernet switch qos tx-manager
set default ecn=no
